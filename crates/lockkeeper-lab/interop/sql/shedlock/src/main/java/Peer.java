import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;

/**
 * ShedLock on a table of its own, commanded by lines; see the module {@code interop} of the lab for
 * the commands. It knows {@code bench} only: ShedLock never waits.
 */
public final class Peer {
    private static final String TABLE =
            "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) PRIMARY KEY,"
                    + " lock_until TIMESTAMP(6) NOT NULL, locked_at TIMESTAMP(6) NOT NULL,"
                    + " locked_by VARCHAR(255) NOT NULL)";

    public static void main(String[] arguments) throws Exception {
        URI url = URI.create(arguments[0]);
        String scheme = url.getScheme().startsWith("postgres") ? "postgresql" : "mariadb";
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:" + scheme + "://127.0.0.1:" + url.getPort() + url.getPath());
        config.setUsername("lockkeeper");
        config.setMaximumPoolSize(4);
        HikariDataSource pool = new HikariDataSource(config);
        try (Connection connection = pool.getConnection();
                Statement statement = connection.createStatement()) {
            statement.execute(TABLE);
        }
        JdbcLockProvider provider = new JdbcLockProvider(pool);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        say("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" +");
            if (words[0].equals("quit")) {
                break;
            }
            try {
                say(words[0].equals("bench") ? bench(provider, words) : "error unknown " + line);
            } catch (Exception error) {
                say("error " + error);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** So many times taken and given back: the seconds that it took. */
    private static String bench(JdbcLockProvider provider, String[] words) {
        int rounds = Integer.parseInt(words[2]);
        long begin = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            // It may be busy for the fraction of a microsecond by which its end was rounded up.
            Optional<SimpleLock> held = Optional.empty();
            while (held.isEmpty()) {
                Duration most = Duration.ofSeconds(30);
                held =
                        provider.lock(
                                new LockConfiguration(
                                        Instant.now(), words[1], most, Duration.ZERO));
            }
            held.get().unlock();
        }
        return "took " + (System.nanoTime() - begin) / 1e9;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
