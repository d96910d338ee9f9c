import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/**
 * Redisson, commanded by lines: {@code VERB NAME [TTL_MS | COUNT] [THREAD]}.
 *
 * <p>What is held belongs to the thread that took it, so threads are named; one that is not is
 * {@code main}. The answer of any other is followed by its name. A ttl of 0 is the watchdog's.
 */
public final class Peer {
    private final RedissonClient redisson;
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Peer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(Redisson.create(configured(arguments[0])));
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" +");
            if (words[0].equals("quit")) {
                break;
            }
            peer.command(words);
        }
        // What is held is left to its ttl, as by a process that ends without a word.
        Runtime.getRuntime().halt(0);
    }

    private static Config configured(String url) {
        Config config = new Config();
        String cluster = "redis+cluster://";
        if (url.startsWith(cluster)) {
            ClusterServersConfig servers = config.useClusterServers()
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1);
            for (String host : url.substring(cluster.length()).split(",")) {
                servers.addNodeAddress("redis://" + host);
            }
            return config;
        }
        config.useSingleServer()
                .setAddress(url)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    private void command(String[] words) {
        boolean timed = !words[0].endsWith("unlock");
        int usual = timed ? 3 : 2;
        String thread = words.length > usual ? words[usual] : "main";
        long number = timed ? Long.parseLong(words[2]) : 0;
        ExecutorService executor =
                threads.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor());
        executor.execute(() -> {
            String answer;
            try {
                answer = act(words[0], words[1], number);
            } catch (Exception error) {
                answer = "error " + error;
            }
            say(thread.equals("main") ? answer : answer + " " + thread);
        });
    }

    private String act(String verb, String name, long number) throws InterruptedException {
        switch (verb) {
            case "lock":
                return lock(redisson.getLock(name), number);
            case "read-lock":
                return lock(redisson.getReadWriteLock(name).readLock(), number);
            case "write-lock":
                return lock(redisson.getReadWriteLock(name).writeLock(), number);
            case "try":
                return attempt(redisson.getLock(name), number);
            case "try-read":
                return attempt(redisson.getReadWriteLock(name).readLock(), number);
            case "try-write":
                return attempt(redisson.getReadWriteLock(name).writeLock(), number);
            case "unlock":
                return unlock(redisson.getLock(name));
            case "read-unlock":
                return unlock(redisson.getReadWriteLock(name).readLock());
            case "write-unlock":
                return unlock(redisson.getReadWriteLock(name).writeLock());
            case "bench":
                return bench(redisson.getLock(name), number);
            default:
                return "error unknown " + verb;
        }
    }

    private static String lock(RLock lock, long ttl) {
        if (ttl == 0) {
            lock.lock();
        } else {
            lock.lock(ttl, TimeUnit.MILLISECONDS);
        }
        return "held";
    }

    private static String attempt(RLock lock, long ttl) throws InterruptedException {
        boolean held = ttl == 0 ? lock.tryLock() : lock.tryLock(0, ttl, TimeUnit.MILLISECONDS);
        return held ? "held" : "busy";
    }

    private static String unlock(RLock lock) {
        try {
            lock.unlock();
            return "unlocked";
        } catch (IllegalMonitorStateException error) {
            return "not-held";
        }
    }

    private static String bench(RLock lock, long count) {
        long begin = System.nanoTime();
        for (long i = 0; i < count; i++) {
            lock.lock(30, TimeUnit.SECONDS);
            lock.unlock();
        }
        return "took " + (System.nanoTime() - begin) / 1e9;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
