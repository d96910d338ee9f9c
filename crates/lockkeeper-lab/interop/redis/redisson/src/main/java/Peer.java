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
import org.redisson.config.Config;

/**
 * Redisson, commanded by lines: {@code VERB NAME [TTL_MS] [THREAD]}.
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
        Config config = new Config();
        config.useSingleServer()
                .setAddress(arguments[0])
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
        Peer peer = new Peer(Redisson.create(config));
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

    private void command(String[] words) {
        boolean timed = !words[0].endsWith("unlock");
        int usual = timed ? 3 : 2;
        String thread = words.length > usual ? words[usual] : "main";
        long ttl = timed ? Long.parseLong(words[2]) : 0;
        ExecutorService executor =
                threads.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor());
        executor.execute(() -> {
            String answer;
            try {
                answer = act(words[0], words[1], ttl);
            } catch (Exception error) {
                answer = "error " + error;
            }
            say(thread.equals("main") ? answer : answer + " " + thread);
        });
    }

    private String act(String verb, String name, long ttl) throws InterruptedException {
        switch (verb) {
            case "lock":
                return lock(redisson.getLock(name), ttl);
            case "read-lock":
                return lock(redisson.getReadWriteLock(name).readLock(), ttl);
            case "write-lock":
                return lock(redisson.getReadWriteLock(name).writeLock(), ttl);
            case "try":
                return attempt(redisson.getLock(name), ttl);
            case "try-read":
                return attempt(redisson.getReadWriteLock(name).readLock(), ttl);
            case "try-write":
                return attempt(redisson.getReadWriteLock(name).writeLock(), ttl);
            case "unlock":
                return unlock(redisson.getLock(name));
            case "read-unlock":
                return unlock(redisson.getReadWriteLock(name).readLock());
            case "write-unlock":
                return unlock(redisson.getReadWriteLock(name).writeLock());
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

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
