// SPDX-License-Identifier: Apache-2.0
package kiln;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/**
 * What Java code can look like on a stack, for test_hotspot.py. usage: HotspotWork SECONDS CONSTRUCT...
 *
 * Each construct has a thread of its own and does its work in burn(), which tells what called it: every new stack trace
 * is printed as the machine itself gives it, "chain NAME|FILE|LINE ..." with the innermost first; "told CONSTRUCT" once it
 * has looked at the first ones.
 */
public class HotspotWork {
    static final int WORK = 2000;
    static final int FIRST = 100;
    static volatile long sink;
    static long end;
    static final Set<String> chains = new HashSet<>();

    // ---- the leaf

    static long burn(long x) { // AT burn_first
        Worker worker = (Worker) Thread.currentThread();
        if (worker.calls < FIRST || worker.calls % 1021 == 0) {
            tell(new Throwable().getStackTrace());
        }
        if (++worker.calls == FIRST) {
            System.out.println("told " + worker.construct);
        }
        for (int i = 0; i < WORK; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 29;
        }
        return x;
    } // AT burn_last

    static synchronized void tell(StackTraceElement[] trace) {
        StringBuilder text = new StringBuilder("chain");
        for (StackTraceElement e : trace) {
            text.append(' ').append(e.getClassName()).append('.').append(e.getMethodName()).append('|')
                    .append(e.getFileName()).append('|').append(e.getLineNumber());
        }
        String chain = text.toString();
        if (chains.size() < 5000 && chains.add(chain)) {
            System.out.println(chain);
        }
    }

    static boolean over() {
        return System.currentTimeMillis() >= end;
    }

    /** Does one construct until the end. */
    static class Worker extends Thread {
        final String construct;
        int calls;

        Worker(String construct) {
            super("the worker of " + construct);
            this.construct = construct;
        }

        @Override
        public void run() {
            try {
                HotspotWork.run(construct);
            } catch (Throwable e) {
                e.printStackTrace();
                System.exit(1);
            }
        }
    }

    // ---- calls of all kinds

    interface Shape {
        long area(long x);
    }

    static class Square implements Shape {
        public long area(long x) {
            return burn(x) + 1;
        }
    }

    static class Circle implements Shape {
        public long area(long x) {
            return twice(x);
        }

        private long twice(long x) {
            return burn(x) ^ burn(x + 1);
        }
    }

    abstract static class Base {
        abstract long step(long x);

        long through(long x) {
            return step(x) + 1;
        }
    }

    static class Derived extends Base {
        long step(long x) {
            return burn(x);
        }
    }

    static final Shape[] shapes = {new Square(), new Circle()};
    static final Base base = new Derived();

    static long calls(long x) {
        for (int i = 0; i < 20; i++) {
            x = shapes[i & 1].area(x);
            x = base.through(x);
            x = locked(x);
        }
        return x;
    }

    static synchronized long locked(long x) {
        return burn(x);
    }

    static long recurse(int depth, long x) {
        if (depth == 0) {
            return burn(x);
        }
        return recurse(depth - 1, x) + 1;
    }

    static long recursion(long x) {
        return recurse(800, x);
    }

    static long lambdas(long x) {
        long n = IntStream.range(0, 20).mapToLong(i -> burn(i + sink)).sum();
        List<Long> list = new ArrayList<>(Arrays.asList(3L, 1L, 2L, n));
        list.sort((a, b) -> {
            burn(a);
            return Long.compare(a, b);
        });
        Runnable r = () -> sink = burn(n);
        r.run();
        list.forEach(HotspotWork::burn);
        return x + n;
    }

    // ---- exceptions

    static class Thrown extends RuntimeException {
        Thrown(long x) {
            super(String.valueOf(x));
        }
    }

    static long deep(int depth, long x) {
        if (depth == 0) {
            burn(x);
            throw new Thrown(x);
        }
        return deep(depth - 1, x) + depth;
    }

    static long exceptions(long x) {
        try {
            return deep(50, x);
        } catch (Thrown e) {
            return x + e.getStackTrace().length;
        }
    }

    // ---- reflection

    static Method method;
    static MethodHandle handle;

    static long reflection(long x) throws Throwable {
        if (method == null) {
            method = HotspotWork.class.getDeclaredMethod("burn", long.class);
            handle = MethodHandles.lookup().findStatic(HotspotWork.class, "burn",
                    MethodType.methodType(long.class, long.class));
        }
        for (int i = 0; i < 10; i++) {
            x = (Long) method.invoke(null, x);
            x = (long) handle.invokeExact(x);
        }
        return x;
    }

    // ---- native code that calls back

    static native long call(long x, int depth);

    static long callBack(long x, int depth) {
        return depth == 0 ? burn(x) : call(x, depth - 1);
    }

    static long jni(long x) {
        return call(x, 3);
    }

    // ---- threads that wait for each other

    static final Object lock = new Object();

    static long contended(long x) {
        synchronized (lock) {
            return burn(x);
        }
    }

    static void blocking() throws InterruptedException {
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            Thread next = i > 0 ? threads[i - 1] : null;
            threads[i] = new Worker("parking") {
                @Override
                public void run() {
                    parking(next);
                }
            };
            threads[i].start();
        }
        for (Thread t : threads) {
            t.join();
        }
    }

    static void parking(Thread next) {
        while (!over()) {
            sink = contended(sink);
            if (next != null) {
                LockSupport.unpark(next);
            }
            LockSupport.parkNanos(20000);
        }
    }

    // ---- classes that come and go

    static byte[] bytesOf(Class<?> c) throws IOException {
        String name = c.getName().substring(c.getName().lastIndexOf('.') + 1) + ".class";
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        byte[] chunk = new byte[8192];
        try (InputStream in = c.getResourceAsStream(name)) {
            for (int n; (n = in.read(chunk)) > 0;) {
                out.write(chunk, 0, n);
            }
        }
        return out.toByteArray();
    }

    /** Loads a class of its own under a name that is as long as the one that it was compiled with. */
    static class Loader extends ClassLoader {
        private final byte[] bytes;

        Loader(byte[] template, String from, String to) {
            super(HotspotWork.class.getClassLoader());
            bytes = template.clone();
            byte[] a = from.getBytes(StandardCharsets.US_ASCII);
            byte[] b = to.getBytes(StandardCharsets.US_ASCII);
            for (int i = 0; i + a.length <= bytes.length; i++) {
                if (Arrays.equals(Arrays.copyOfRange(bytes, i, i + a.length), a)) {
                    System.arraycopy(b, 0, bytes, i, b.length);
                }
            }
        }

        Class<?> load() {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    /** Of each generation the thread has the class's name: whatever a sample shows must be of one of them. */
    static void unloading() throws Exception {
        byte[] template = bytesOf(HotspotGen.class);
        int generation = 0;
        while (!over()) {
            String name = String.format("HotspotG%02d", generation % 100);
            Class<?> c = new Loader(template, "HotspotGen", name).load();
            Runnable r = (Runnable) c.getDeclaredConstructor().newInstance();
            Thread t = new Thread(r, name);
            t.start();
            t.join();
            if (++generation % 4 == 0) {
                System.gc();
            }
        }
        System.out.println("generations " + generation);
    }

    /** Code that is compiled for what it has seen, and then sees something else. */
    static void storm() throws Exception {
        byte[] template = bytesOf(HotspotStorm.class);
        int generation = 0;
        while (!over()) {
            Class<?> c = new Loader(template, "HotspotStorm", "HotspotStorm").load();
            @SuppressWarnings("unchecked")
            java.util.function.LongUnaryOperator op =
                    (java.util.function.LongUnaryOperator) c.getDeclaredConstructor().newInstance();
            for (int i = 0; i < 40; i++) {
                sink = op.applyAsLong(sink);
            }
            generation++;
        }
        System.out.println("generations " + generation);
    }

    // ---- all of them

    static long once(String construct, long x) throws Throwable {
        switch (construct) {
        case "calls":
            return calls(x);
        case "recursion":
            return recursion(x);
        case "lambdas":
            return lambdas(x);
        case "exceptions":
            return exceptions(x);
        case "reflection":
            return reflection(x);
        case "jni":
            return jni(x);
        default:
            throw new IllegalArgumentException(construct);
        }
    }

    static void run(String construct) throws Throwable {
        switch (construct) {
        case "blocking":
            blocking();
            return;
        case "unloading":
            unloading();
            return;
        case "storm":
            storm();
            return;
        default:
            while (!over()) {
                sink = once(construct, sink);
            }
        }
    }

    public static void main(String[] arguments) throws Throwable {
        end = System.currentTimeMillis() + Long.parseLong(arguments[0]) * 1000;
        if (System.getProperty("library") != null) {
            System.load(System.getProperty("library"));
        }
        System.out.println("begin " + System.getProperty("java.version"));
        List<Worker> workers = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) {
            workers.add(new Worker(arguments[i]));
        }
        for (Worker w : workers) {
            w.start();
        }
        for (Worker w : workers) {
            w.join();
        }
        System.out.println("end");
    }
}
