import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson at the end of a pipe, with the orders of {@code checks/interop/src/member.rs}. */
public final class Player {
    private static final int THREADS = 6;
    /** The shared locks, whose kinds are in {@code names.rs}. */
    private static final int[] NAMES = {0, 1, 2, 3, 6, 16, 17, 18};
    /** Longest hold, and longest pause between two holds, in ms. */
    private static final long TURN = 10;
    private static final long THINK = 30;
    /** Remaining lease in ms of any hold: far less than the true remainder. */
    private static final long LEFT_MILLIS = 5000;

    private final RedissonClient redisson;
    private final long watchdogMillis;
    /** Threads by name: Redisson's owners are threads. */
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    private final AtomicLong acquisitions = new AtomicLong();
    private volatile boolean stopping;

    private Player(String address, long watchdogMillis) throws InterruptedException {
        this.redisson = client(address, watchdogMillis);
        this.watchdogMillis = watchdogMillis;
    }

    /** Retries until connected: the proxy may cut links meanwhile. */
    private static RedissonClient client(String address, long watchdogMillis) throws InterruptedException {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis);
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1);
        for (;;) {
            try {
                return Redisson.create(config);
            } catch (RedisException error) {
                Thread.sleep(50);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        Player player = new Player(args[0], Long.parseLong(args[1]));
        String version = Redisson.class.getPackage().getImplementationVersion();
        System.out.println("ready " + version + " " + player.redisson.getId());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[1].equals("stop")) {
                player.stopping = true;
            } else {
                player.thread(words[0]).execute(() -> answer(words[0], player.obey(words)));
            }
        }
        // The parent is gone.
        Runtime.getRuntime().halt(0);
    }

    private ExecutorService thread(String name) {
        return threads.computeIfAbsent(name, it -> Executors.newSingleThreadExecutor());
    }

    private static synchronized void answer(String thread, String answer) {
        System.out.println(thread + " " + answer);
    }

    private String obey(String[] words) {
        try {
            if (words[1].equals("play")) {
                return play(words[2], Integer.parseInt(words[4]));
            }
            if (words[2].equals("permits")) {
                return pacePermits(words[3], Long.parseLong(words[4]), Long.parseLong(words[5]));
            }
            return obey(words[1], lock(words[2], words[3]), words);
        } catch (IllegalMonitorStateException error) {
            return "not-held";
        } catch (Exception error) {
            return "error " + String.valueOf(error).replace('\n', ' ');
        }
    }

    private RLock lock(String kind, String name) {
        switch (kind) {
            case "plain": return redisson.getLock(name);
            case "fenced": return redisson.getFencedLock(name);
            case "fair": return redisson.getFairLock(name);
            case "spin": return redisson.getSpinLock(name);
            case "read": return redisson.getReadWriteLock(name).readLock();
            case "write": return redisson.getReadWriteLock(name).writeLock();
            case "multi": return redisson.getMultiLock(redisson.getLock(name + ":a"), redisson.getLock(name + ":b"));
            default: throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    private String obey(String verb, RLock lock, String[] words) throws Exception {
        switch (verb) {
            case "lock": return acquire(lock, Long.parseLong(words[4]));
            case "try": return tryFor(lock, Long.parseLong(words[4]), Long.parseLong(words[5]));
            case "unlock": lock.unlock(); return "done";
            case "force": return lock.forceUnlock() ? "freed" : "free";
            case "locked": return String.valueOf(lock.isLocked());
            case "holds": return String.valueOf(lock.getHoldCount());
            case "left": return String.valueOf(lock.remainTimeToLive());
            case "pace": return pace(lock, Long.parseLong(words[4]), Long.parseLong(words[5]));
            default: throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    private static String acquire(RLock lock, long leaseMillis) {
        if (lock instanceof RFencedLock fenced) {
            return "got " + fenced.lockAndGetToken();
        }
        lock.lock(leaseMillis, TimeUnit.MILLISECONDS);
        return "got";
    }

    private static String tryFor(RLock lock, long waitMillis, long leaseMillis) throws InterruptedException {
        if (lock instanceof RFencedLock fenced) {
            Long token = fenced.tryLockAndGetToken(waitMillis, leaseMillis, TimeUnit.MILLISECONDS);
            return token == null ? "held" : "got " + token;
        }
        // In the fair lock, tryLock() without times is another command.
        boolean got = waitMillis == 0 && leaseMillis < 0
            ? lock.tryLock()
            : lock.tryLock(waitMillis, leaseMillis, TimeUnit.MILLISECONDS);
        return got ? "got" : "held";
    }

    /** Runs turns of some threads until told to stop, and writes each to the journal. */
    private String play(String path, int place) throws Exception {
        // One unbuffered write for each line, which survives a kill.
        OutputStream journal = Files.newOutputStream(Path.of(path), StandardOpenOption.CREATE_NEW, StandardOpenOption.APPEND);
        ExecutorService players = Executors.newFixedThreadPool(THREADS);
        for (int thread = 0; thread < THREADS; thread++) {
            players.execute(() -> {
                while (!stopping) {
                    turn(journal, place);
                }
            });
        }
        players.shutdown();
        while (!players.awaitTermination(1, TimeUnit.HOURS)) {
            continue;
        }
        tell(journal, System.nanoTime(), "Quiet", "\"entries\":0,\"interest\":0,\"subscriptions\":0");
        return "quiet";
    }

    private void turn(OutputStream journal, int place) {
        try {
            pause(THINK);
            ThreadLocalRandom random = ThreadLocalRandom.current();
            int name = NAMES[random.nextInt(NAMES.length)];
            boolean fair = name < 16 && name % 8 >= 6;
            // Only the spared member plays fair locks; see faults.rs.
            if (fair && place != 1) {
                return;
            }
            boolean reads = name >= 16 && random.nextBoolean();
            boolean fenced = !fair && name < 16 && name % 4 == 0;
            RLock lock = lock(fair ? "fair" : reads ? "read" : name >= 16 ? "write" : fenced ? "fenced" : "plain", "stage:" + name);
            String id = "\"id\":" + acquisitions.getAndIncrement();
            tell(journal, System.nanoTime(), "Wants", id + ",\"name\":" + name + ",\"wish\":{\"lease\":" + watchdogMillis * 1_000_000
                + ",\"watched\":true,\"explicit\":false,\"fenced\":" + fenced + ",\"unpolled\":false,\"reads\":" + reads + "}");
            try {
                hold(journal, lock, id, fair || random.nextBoolean() ? null : random.nextLong(1500));
            } catch (RuntimeException error) {
                // The link was cut.
                tell(journal, System.nanoTime(), "Without", id + ",\"why\":\"Failed\"");
            }
            release(lock);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private void hold(OutputStream journal, RLock lock, String id, Long waitMillis) throws Exception {
        String got = waitMillis == null ? acquire(lock, -1) : tryFor(lock, waitMillis, -1);
        if (got.equals("held")) {
            tell(journal, System.nanoTime(), "Without", id + ",\"why\":\"Late\"");
            return;
        }
        String owner = redisson.getId() + ":" + Thread.currentThread().getId();
        String token = got.equals("got") ? "null" : got.substring(4);
        tell(journal, System.nanoTime(), "Acquired", id + ",\"owner\":\"" + owner + "\",\"token\":" + token);
        look(journal, lock, id);
        pause(TURN);
        look(journal, lock, id);
        tell(journal, System.nanoTime(), "LetsGo", id + ",\"by\":\"Unlock\"");
        String outcome = "Free";
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException error) {
            outcome = "NotHeld";
        } catch (RuntimeException error) {
            outcome = "Failed";
        }
        tell(journal, System.nanoTime(), "LetGo", id + ",\"outcome\":\"" + outcome + "\"");
    }

    /** Asks the server; a yes means that this thread had the lock after the noted moment. */
    private static void look(OutputStream journal, RLock lock, String id) throws IOException {
        long at = System.nanoTime();
        try {
            if (lock.isHeldByCurrentThread()) {
                tell(journal, at, "Believes", id + ",\"left\":" + LEFT_MILLIS * 1_000_000);
            } else {
                tell(journal, System.nanoTime(), "Lost", id + ",\"why\":\"Gone\"");
            }
        } catch (RuntimeException error) {
            // The link was cut.
        }
    }

    private static void tell(OutputStream journal, long at, String event, String fields) throws IOException {
        journal.write(("{\"at\":" + at + ",\"event\":{\"" + event + "\":{" + fields + "}}}\n").getBytes(StandardCharsets.UTF_8));
    }

    /** Sleeps for a random time of up to {@code millis}. */
    private static void pause(long millis) throws InterruptedException {
        if (millis > 0) {
            Thread.sleep(ThreadLocalRandom.current().nextLong(millis + 1));
        }
    }

    /** Unlocks until the server reports no hold: a lost reply may have left a second hold. */
    private static void release(RLock lock) {
        for (;;) {
            try {
                if (!lock.isHeldByCurrentThread()) {
                    return;
                }
                lock.unlock();
            } catch (RuntimeException error) {
                // The link was cut, or the lease has expired.
            }
        }
    }

    /** Takes turns of up to {@code turn} ms for {@code millis}; returns the waits in ns, with counts. */
    private static String pace(RLock lock, long millis, long turn) throws InterruptedException {
        return pace(millis, turn, () -> {
            lock.lock();
            return lock::unlock;
        });
    }

    /** As {@code pace}, with a semaphore of two permits. */
    private String pacePermits(String name, long millis, long turn) throws InterruptedException {
        RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(2);
        return pace(millis, turn, () -> {
            String id = semaphore.acquire(watchdogMillis, TimeUnit.MILLISECONDS);
            return () -> semaphore.release(id);
        });
    }

    private interface Acquire {
        /** Waits for a turn, and returns its end. */
        Runnable call() throws InterruptedException;
    }

    private static String pace(long millis, long turn, Acquire acquire) throws InterruptedException {
        Map<Long, Integer> waits = new TreeMap<>();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        for (long begun = System.nanoTime(); begun < end; begun = System.nanoTime()) {
            Runnable release = acquire.call();
            waits.merge(rounded(System.nanoTime() - begun), 1, Integer::sum);
            pause(turn);
            release.run();
        }
        StringBuilder answer = new StringBuilder("waited");
        waits.forEach((wait, times) -> answer.append(' ').append(wait).append('x').append(times));
        return answer.toString();
    }

    /** Rounds to seven binary digits, for few different values. */
    private static long rounded(long nanos) {
        int digits = Math.max(0, 57 - Long.numberOfLeadingZeros(Math.max(nanos, 1)));
        return nanos >> digits << digits;
    }
}
