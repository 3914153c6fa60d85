// SPDX-License-Identifier: Apache-2.0
package kiln;

import java.util.function.LongUnaryOperator;

/** Is compiled for one kind of objects, and then given another: see HotspotWork.storm(). */
public class HotspotStorm implements LongUnaryOperator {
    private int round;

    static long second(Object o, long x, int depth) {
        if (depth > 0) {
            return second(o, x, depth - 1) + 1;
        }
        if (o instanceof Integer) {
            return x + (Integer) o;
        }
        if (o instanceof Long) {
            return x ^ (Long) o;
        }
        return x + o.hashCode();
    }

    static long first(Object o, long x) {
        long sum = 0;
        for (int i = 0; i < 300; i++) {
            sum += second(o, x + i, i & 7);
        }
        return sum;
    }

    @Override
    public long applyAsLong(long x) {
        Object[] kinds = {1, 2L, "three", 4.0, 'c'};
        Object o = kinds[round++ / 8 % kinds.length];
        for (int i = 0; i < 60; i++) {
            x += first(o, x);
        }
        return x;
    }
}
