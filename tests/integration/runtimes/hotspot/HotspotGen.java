// SPDX-License-Identifier: Apache-2.0
package kiln;

/** Loaded anew under other names: see HotspotWork.unloading(). */
public class HotspotGen implements Runnable {
    static volatile long sink;
    static final int MILLIS = 30;

    static long inner(long x) {
        for (int i = 0; i < 5000; i++) {
            x = x * 6364136223846793005L + 1;
        }
        return x;
    }

    static long outer(long x) {
        return inner(x) + inner(x + 1);
    }

    @Override
    public void run() {
        long end = System.nanoTime() + MILLIS * 1000000L;
        while (System.nanoTime() < end) {
            sink = outer(sink);
        }
    }
}
