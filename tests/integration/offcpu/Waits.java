// SPDX-License-Identifier: Apache-2.0
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;

/** What Java threads wait for, as tests/workloads/waits.c does in C. Usage: Waits SECONDS */
public class Waits {
    static long end;
    static final Object LOCK = new Object();
    static final TreeMap<String, String> RESULT = new TreeMap<>();
    static InputStream in;
    static OutputStream out;

    static void waitSleep() throws Exception {
        while (System.nanoTime() < end)
            Thread.sleep(5);
    }

    static void waitMonitor() throws Exception {
        while (System.nanoTime() < end)
            synchronized (LOCK) {
            }
    }

    static void waitHolding() throws Exception {
        while (System.nanoTime() < end) {
            synchronized (LOCK) {
                Thread.sleep(20);
            }
            Thread.sleep(1);
        }
    }

    static void waitPark() throws Exception {
        while (System.nanoTime() < end)
            LockSupport.parkNanos(7_000_000);
    }

    static void waitSocket() throws Exception {
        while (in.read() >= 0)
            ;
    }

    static void waitWriting() throws Exception {
        while (System.nanoTime() < end) {
            Thread.sleep(10);
            out.write('x');
        }
        out.close();
    }

    interface Place {
        void run() throws Exception;
    }

    static String own(String file) throws Exception {
        return Files.readString(Path.of("/proc/thread-self/" + file)).split(" ")[0];
    }

    static Thread start(String name, Place place) {
        Thread t = new Thread(() -> {
            try {
                long began = System.nanoTime(), before = Long.parseLong(own("schedstat"));
                place.run();
                long off = System.nanoTime() - began - (Long.parseLong(own("schedstat")) - before);
                synchronized (RESULT) {
                    RESULT.put(name, own("stat") + ", \"off\": " + off);
                }
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        t.start();
        return t;
    }

    public static void main(String[] arguments) throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, java.net.InetAddress.getLoopbackAddress())) {
            Socket a = new Socket(server.getInetAddress(), server.getLocalPort());
            out = a.getOutputStream();
            in = server.accept().getInputStream();
        }
        System.out.println("{\"pid\": " + ProcessHandle.current().pid() + "}");
        if (System.in.read() < 0)
            return;
        end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        List<Thread> threads = new ArrayList<>();
        threads.add(start("Waits.waitSleep", Waits::waitSleep));
        threads.add(start("Waits.waitMonitor", Waits::waitMonitor));
        threads.add(start("Waits.waitHolding", Waits::waitHolding));
        threads.add(start("Waits.waitPark", Waits::waitPark));
        threads.add(start("Waits.waitSocket", Waits::waitSocket));
        threads.add(start("Waits.waitWriting", Waits::waitWriting));
        for (Thread t : threads)
            t.join();
        List<String> said = new ArrayList<>();
        RESULT.forEach((name, values) -> said.add("\"" + name + "\": {\"tid\": " + values + "}"));
        System.out.println("{" + String.join(", ", said) + "}");
        while (System.in.read() >= 0)
            ;
    }
}
