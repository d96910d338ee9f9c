import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

/** Curator, commanded by lines; see the module {@code interop} of the lab for the commands. */
public final class Peer {
    private static final int SESSION_MS = 4000;
    /** How long one who waits goes on after the time is over. */
    private static final long GRACE = TimeUnit.SECONDS.toNanos(2);
    /** Long enough for one that is free, for what cannot be tried without waiting. */
    private static final int MOMENT_MS = 1000;

    private final CuratorFramework client;
    private final String root;
    /** What a lock is: a mutex, or what the URL says behind its question mark. */
    private final String kind;
    private final Map<String, LeaderLatch> latches = new HashMap<>();
    private final Map<String, Lease> leases = new HashMap<>();
    private final Map<String, InterProcessMutex> mutexes = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> pairs = new HashMap<>();

    /** Whether the session ended since the start. */
    private volatile boolean lostOnce;

    private Peer(CuratorFramework client, String root, String kind) {
        this.client = client;
        this.root = root;
        this.kind = kind == null ? "mutex" : kind;
        client.getConnectionStateListenable()
                .addListener((it, state) -> lostOnce |= state == ConnectionState.LOST);
    }

    public static void main(String[] arguments) throws Exception {
        URI url = URI.create(arguments[0]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(
                        url.getAuthority(), SESSION_MS, SESSION_MS, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        Peer peer = new Peer(client, url.getPath(), url.getQuery());
        BlockingQueue<String> orders = new LinkedBlockingQueue<>();
        // In a thread of its own: one who waits for a lock must still hear that the input ended.
        Thread reader = new Thread(() -> read(orders));
        reader.setDaemon(true);
        reader.start();
        say("ready");
        for (String line = orders.take(); !line.equals("quit"); line = orders.take()) {
            String[] words = line.trim().split(" +");
            try {
                say(peer.act(words));
            } catch (Exception error) {
                say("error " + error);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void read(BlockingQueue<String> orders) {
        try {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                orders.add(line);
            }
        } catch (java.io.IOException error) {
            // As its end.
        }
        Runtime.getRuntime().halt(0);
    }

    private String act(String[] words) throws Exception {
        String path = root + "/" + words[1];
        switch (words[0]) {
            case "lock":
            case "try":
            case "unlock":
                switch (kind) {
                    case "latch":
                        return withLatch(path, words[0]);
                    case "semaphore":
                        return withSemaphore(path, words[0]);
                    default:
                        return with(mutex(path), words[0]);
                }
            case "read-lock":
                return with(pair(path).readLock(), "lock");
            case "write-lock":
                return with(pair(path).writeLock(), "lock");
            case "try-read":
                return with(pair(path).readLock(), "try");
            case "try-write":
                return with(pair(path).writeLock(), "try");
            case "read-unlock":
                return with(pair(path).readLock(), "unlock");
            case "write-unlock":
                return with(pair(path).writeLock(), "unlock");
            case "holds":
                // What Curator tells its users to listen to: a client without a connection holds nothing.
                boolean known = client.getZookeeperClient().isConnected() && !lostOnce;
                return known && mutex(path).isAcquiredInThisProcess() ? "holds" : "lost";
            case "turns":
                return turns(
                        path,
                        Integer.parseInt(words[2]),
                        Long.parseLong(words[3]),
                        words.length > 4);
            case "wait":
                for (int count = Integer.parseInt(words[2]); count > 0; count--) {
                    background(() -> new InterProcessMutex(client, path).acquire());
                }
                return "waiting";
            case "bench":
                return bench(mutex(path), Integer.parseInt(words[2]));
            default:
                return "error unknown " + words[0];
        }
    }

    private InterProcessMutex mutex(String path) {
        return mutexes.computeIfAbsent(path, it -> new InterProcessMutex(client, it));
    }

    private InterProcessReadWriteLock pair(String path) {
        return pairs.computeIfAbsent(path, it -> new InterProcessReadWriteLock(client, it));
    }

    private static String with(InterProcessMutex lock, String verb) throws Exception {
        switch (verb) {
            case "lock":
                lock.acquire();
                return "held";
            case "try":
                return lock.acquire(0, TimeUnit.MILLISECONDS) ? "held" : "busy";
            default:
                try {
                    lock.release();
                    return "unlocked";
                } catch (IllegalMonitorStateException error) {
                    return "not-held";
                }
        }
    }

    private String withLatch(String path, String verb) throws Exception {
        if (verb.equals("unlock")) {
            LeaderLatch latch = latches.remove(path);
            boolean led = latch != null && latch.hasLeadership();
            if (latch != null) {
                close(latch);
            }
            return led ? "unlocked" : "not-held";
        }
        LeaderLatch latch = new LeaderLatch(client, path, "curator");
        latch.start();
        if (verb.equals("lock")) {
            latch.await();
        } else if (!latch.await(MOMENT_MS, TimeUnit.MILLISECONDS)) {
            close(latch);
            return "busy";
        }
        latches.put(path, latch);
        return "held";
    }

    /** It asks for its node to be deleted and does not wait until it is. */
    private void close(LeaderLatch latch) throws Exception {
        String node = latch.getOurPath();
        latch.close();
        while (node != null && client.checkExists().forPath(node) != null) {
            Thread.sleep(5);
        }
    }

    private String withSemaphore(String path, String verb) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 1);
        if (verb.equals("unlock")) {
            Lease lease = leases.remove(path);
            if (lease == null) {
                return "not-held";
            }
            semaphore.returnLease(lease);
            return "unlocked";
        }
        Lease lease =
                verb.equals("lock")
                        ? semaphore.acquire()
                        : semaphore.acquire(MOMENT_MS, TimeUnit.MILLISECONDS);
        if (lease == null) {
            return "busy";
        }
        leases.put(path, lease);
        return "held";
    }

    /** So many times taken and given back: the seconds that it took. */
    private static String bench(InterProcessMutex lock, int rounds) throws Exception {
        long begin = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            lock.acquire();
            lock.release();
        }
        return "took " + (System.nanoTime() - begin) / 1e9;
    }

    /** Tasks that take the lock, or each one of its own, for so many milliseconds. */
    private String turns(String path, int tasks, long length, boolean own) throws Exception {
        long end = System.nanoTime() + length * 1_000_000;
        ConcurrentLinkedQueue<String> turns = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            InterProcessMutex lock =
                    new InterProcessMutex(client, own ? path + "/" + task : path);
            threads.add(background(() -> take(lock, end, turns)));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return "turns " + String.join(" ", turns);
    }

    private static void take(InterProcessMutex lock, long end, Queue<String> turns)
            throws Exception {
        while (System.nanoTime() < end) {
            long asked = now();
            if (!lock.acquire(end + GRACE - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                return;
            }
            long held = now();
            long releasing = now();
            lock.release();
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
        Thread thread =
                new Thread(
                        () -> {
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
