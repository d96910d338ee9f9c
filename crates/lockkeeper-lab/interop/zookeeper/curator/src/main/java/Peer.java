import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/** Curator, commanded by lines; see the module {@code interop} of the lab for the commands. */
public final class Peer {
    private static final int SESSION_MS = 4000;
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

    private Peer(CuratorFramework client, String root, String kind) {
        this.client = client;
        this.root = root;
        this.kind = kind == null ? "mutex" : kind;
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

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
