import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson at the end of a pipe. What is said here, and what is answered, is written down in {@code checks/interop/src/bin/interop/player.rs};
 * {@code ours.rs} beside it says the same for the other side.
 */
public final class Player {
    /** For how many ms a reader of a fleet looks, at most. */
    private static final long LOOK = 10;
    /** For locks, over a network that may be bad. */
    private final RedissonClient redisson;
    /** For the numbers that the fleet counts, over a good one. */
    private final RedissonClient data;
    /** A thread for each name: Redisson's owners are threads. */
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    private volatile boolean stopping;

    private Player(String locks, String data, long watchdogMillis) {
        this.redisson = client(locks, watchdogMillis);
        this.data = client(data, watchdogMillis);
    }

    private static RedissonClient client(String address, long watchdogMillis) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis);
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        Player player = new Player(args[0], args[1], Long.parseLong(args[2]));
        String version = Redisson.class.getPackage().getImplementationVersion();
        System.out.println("ready " + version + " " + player.redisson.getId());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[1].equals("stop")) {
                player.stopping = true;
                answer(words[0], "stopping");
            } else {
                player.thread(words[0]).execute(() -> answer(words[0], player.obey(words)));
            }
        }
        // Whoever speaks to us is gone.
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
            case "count": return turns(lock, words[2], words[4], words[5], Long.parseLong(words[6]));
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
        // The form without times is a command of its own in the fair lock.
        boolean got = waitMillis == 0 && leaseMillis < 0
            ? lock.tryLock()
            : lock.tryLock(waitMillis, leaseMillis, TimeUnit.MILLISECONDS);
        return got ? "got" : "held";
    }

    /** Turns under the lock until it is to stop. */
    private String turns(RLock lock, String kind, String number, String own, long think) throws InterruptedException {
        int torn = 0;
        int lost = 0;
        while (!stopping) {
            pause(think);
            try {
                lock.lock();
                if (!(kind.equals("read") ? look(number, own) : count(number, own))) {
                    torn++;
                }
                if (!lock.isHeldByCurrentThread()) {
                    lost++;
                }
            } catch (RuntimeException error) {
                // Its link was cut.
            }
            release(lock);
        }
        return "counted " + torn + " " + lost;
    }

    /** Adds to a number, and to its own in the same command. */
    private boolean count(String number, String own) {
        Map<String, String> read = data.getBuckets().get(number, own);
        data.getBuckets().set(Map.of(
            number, String.valueOf(Long.parseLong(read.getOrDefault(number, "0")) + 1),
            own, String.valueOf(Long.parseLong(read.getOrDefault(own, "0")) + 1)));
        return true;
    }

    /** Adds to its own number, and reads the other before and after a while: whether it has stood still. */
    private boolean look(String number, String own) throws InterruptedException {
        Object before = data.getBucket(number).get();
        pause(LOOK);
        data.getAtomicLong(own).incrementAndGet();
        return Objects.equals(before, data.getBucket(number).get());
    }

    /** For up to so many ms. */
    private static void pause(long millis) throws InterruptedException {
        if (millis > 0) {
            Thread.sleep(ThreadLocalRandom.current().nextLong(millis + 1));
        }
    }

    /** Until the server says that this thread has no hold: a reply that was lost may stand for one more. */
    private static void release(RLock lock) {
        for (;;) {
            try {
                if (!lock.isHeldByCurrentThread()) {
                    return;
                }
                lock.unlock();
            } catch (RuntimeException error) {
                // Its link was cut, or its lease is over.
            }
        }
    }

    /** As many turns, of up to so many ms, as there is time for: how many nanoseconds were waited how often. */
    private static String pace(RLock lock, long millis, long turn) throws InterruptedException {
        Map<Long, Integer> waits = new TreeMap<>();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        for (long begun = System.nanoTime(); begun < end; begun = System.nanoTime()) {
            lock.lock();
            waits.merge(rounded(System.nanoTime() - begun), 1, Integer::sum);
            pause(turn);
            lock.unlock();
        }
        StringBuilder answer = new StringBuilder("waited");
        waits.forEach((wait, times) -> answer.append(' ').append(wait).append('x').append(times));
        return answer.toString();
    }

    /** To seven binary digits, so that there are few different ones. */
    private static long rounded(long nanos) {
        int digits = Math.max(0, 57 - Long.numberOfLeadingZeros(Math.max(nanos, 1)));
        return nanos >> digits << digits;
    }
}
