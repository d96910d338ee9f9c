import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
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
    /** How long one who waits goes on after the time is over. */
    private static final long GRACE = TimeUnit.SECONDS.toNanos(2);

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
        boolean timed = !words[0].endsWith("unlock") && !words[0].equals("holds");
        int usual = timed ? 3 : 2;
        boolean named = words.length > usual && !words[0].equals("turns");
        String thread = named ? words[usual] : "main";
        long number = timed ? Long.parseLong(words[2]) : 0;
        ExecutorService executor =
                threads.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor());
        executor.execute(() -> {
            String answer;
            try {
                answer = act(words, number);
            } catch (Exception error) {
                answer = "error " + error;
            }
            say(thread.equals("main") ? answer : answer + " " + thread);
        });
    }

    /** As {@link #act} for orders that have more to say. */
    private String act(String[] words, long number) throws InterruptedException {
        boolean timed = words[0].equals("turns");
        long length = timed ? Long.parseLong(words[3]) : 0;
        return act(words[0], words[1], number, length, timed && words.length > 4);
    }

    private String act(String verb, String name, long number, long length, boolean own)
            throws InterruptedException {
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
            case "holds":
                // isHeldByCurrentThread asks the server; there is no word of its own.
                return "asks";
            case "turns":
                return turns(name, (int) number, length, own);
            case "wait":
                for (long i = 0; i < number; i++) {
                    background(() -> redisson.getLock(name).lock(30, TimeUnit.SECONDS));
                }
                return "waiting";
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

    /** Tasks that take the lock, or each one of its own, for so many milliseconds. */
    private String turns(String name, int tasks, long length, boolean own)
            throws InterruptedException {
        long end = System.nanoTime() + length * 1_000_000;
        ConcurrentLinkedQueue<String> turns = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            RLock lock = redisson.getLock(own ? name + "/" + task : name);
            threads.add(background(() -> take(lock, end, turns)));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return "turns " + String.join(" ", turns);
    }

    private static void take(RLock lock, long end, Queue<String> turns) throws Exception {
        while (System.nanoTime() < end) {
            long asked = now();
            long left = end + GRACE - System.nanoTime();
            if (!lock.tryLock(left / 1_000_000, 30_000, TimeUnit.MILLISECONDS)) {
                return;
            }
            long held = now();
            long releasing = now();
            lock.unlock();
            turns.add(asked + "," + held + "," + releasing + "," + now());
        }
    }

    /** Microseconds of a clock that all processes share. */
    private static long now() {
        return System.nanoTime() / 1000;
    }

    private interface Work {
        void run() throws Exception;
    }

    private static Thread background(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                // Its turn is missing.
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
