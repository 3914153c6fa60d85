// SPDX-License-Identifier: Apache-2.0
package kiln;

import java.lang.reflect.Method;
import java.util.concurrent.atomic.LongAdder;

/**
 * The program that bench_java.py profiles. Beside it are the classes C0, C1, ... that bench_java.py writes. Each has a
 * chain of methods: every method calls the next one, and the last one calls leaf().
 *
 * <pre>
 * BenchJava SECONDS chain DEPTH          spins at the end of the last DEPTH methods of C0, which are compiled
 * BenchJava SECONDS methods CLASSES      runs each class's chain once, spins 60 ms at its end, then prints "seen"
 * BenchJava SECONDS threads N            N threads run chains again and again; prints how many thousands, each second
 * </pre>
 */
public final class BenchJava {
    static final int METHODS = 300;
    static volatile long until;
    static volatile long sink;

    private BenchJava() {}

    /** The end of all chains. */
    static long leaf(long x) {
        do {
            for (int i = 0; i < 2000; i++) {
                x = x * 6364136223846793005L + 1;
            }
        } while (System.nanoTime() < until);
        return x;
    }

    static long call(Method m) throws ReflectiveOperationException {
        return (Long) m.invoke(null, sink);
    }

    static Method entry(int cls, int method) throws ReflectiveOperationException {
        return Class.forName("kiln.C" + cls).getDeclaredMethod("m" + method, long.class);
    }

    static void chain(int depth) throws ReflectiveOperationException {
        Method m = entry(0, METHODS - depth);
        for (int i = 0; i < 30000; i++) {
            sink = call(m);
        }
        System.out.println("ready");
        for (;;) {
            until = System.nanoTime() + 50_000_000L;
            sink = call(m);
        }
    }

    static void methods(int classes) throws ReflectiveOperationException, InterruptedException {
        System.out.println("ready");
        for (int i = 0; i < classes; i++) {
            until = System.nanoTime() + 60_000_000L;
            sink = call(entry(i, 0));
        }
        System.out.println("seen");
        Thread.sleep(Long.MAX_VALUE);
    }

    /** Chains of 20 to 50 methods. Nothing is written that other threads write, so that they do not wait for each other. */
    static long run(int depth, long x) {
        switch (depth) {
            case 0:
                return C0.m280(x);
            case 1:
                return C0.m270(x);
            case 2:
                return C0.m260(x);
            default:
                return C0.m250(x);
        }
    }

    static void threads(int n) throws InterruptedException {
        LongAdder done = new LongAdder();
        for (int i = 0; i < n; i++) {
            int depth = i % 4;
            Thread t = new Thread(() -> {
                for (long x = depth;; done.increment()) {
                    for (int k = 0; k < 1000; k++) {
                        x = run(depth, x);
                    }
                }
            });
            t.setDaemon(true);
            t.start();
        }
        System.out.println("ready");
        for (;;) {
            Thread.sleep(1000);
            System.out.println(done.sumThenReset());
        }
    }

    public static void main(String[] args) throws ReflectiveOperationException {
        long seconds = Long.parseLong(args[0]);
        int n = Integer.parseInt(args[2]);
        Thread end = new Thread(() -> {
            try {
                Thread.sleep(seconds * 1000);
            } catch (InterruptedException e) {
                // It is over.
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
        try {
            switch (args[1]) {
                case "chain":
                    chain(n);
                    break;
                case "methods":
                    methods(n);
                    break;
                default:
                    threads(n);
                    break;
            }
        } catch (InterruptedException e) {
            // It is over.
        }
    }
}
