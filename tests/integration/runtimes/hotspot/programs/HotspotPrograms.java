// SPDX-License-Identifier: Apache-2.0
package kiln;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.jetbrains.kotlin.cli.jvm.K2JVMCompiler;

/**
 * Programs that others wrote, at work until the time is over, for test_hotspot_programs.py.
 * usage: HotspotPrograms SECONDS javac|kotlin|jetty|h2|lucene DIRECTORY
 */
public class HotspotPrograms {
    static long end;

    static boolean over() {
        return System.currentTimeMillis() >= end;
    }

    static String[] with(List<String> options, List<Path> files) {
        List<String> out = new ArrayList<>(options);
        files.forEach(file -> out.add(file.toString()));
        return out.toArray(new String[0]);
    }

    /** The compiler on a tree of a thousand files. */
    static void javac(Path directory) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.walk(directory.resolve("java-sources"))) {
            files = all.filter(p -> p.toString().endsWith(".java") && !p.endsWith("module-info.java")).toList();
        }
        String[] arguments = with(List.of("-proc:none", "-nowarn", "-d", directory.resolve("out").toString()), files);
        Files.createDirectories(directory.resolve("out"));
        while (!over()) {
            int status = ToolProvider.getSystemJavaCompiler().run(null, OutputStream.nullOutputStream(),
                    OutputStream.nullOutputStream(), arguments);
            if (status != 0) {
                throw new IllegalStateException("javac: " + status);
            }
        }
    }

    static void kotlin(Path directory) throws Exception {
        Path sources = Files.createDirectories(directory.resolve("kotlin-sources"));
        List<Path> files = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            String text = """
                    package kiln.generated
                    sealed interface Shape@ { val name: String }
                    data class Circle@(override val name: String, val radius: Double) : Shape@
                    data class Square@(override val name: String, val side: Double) : Shape@
                    class Store@<T : Shape@>(private val items: MutableList<T> = mutableListOf()) {
                        fun add(item: T): Store@<T> = apply { items += item }
                        fun area(): Double = items.sumOf { when (val s: Shape@ = it) {
                            is Circle@ -> 3.14 * s.radius * s.radius
                            is Square@ -> s.side * s.side
                        } }
                        fun names(): Map<Char, List<String>> = items.map { it.name }.filter { it.isNotEmpty() }.groupBy { it.first() }
                    }
                    fun main@() { println(Store@<Shape@>().add(Circle@("c", 1.0)).add(Square@("s", 2.0)).run { area() to names() }) }
                    """.replace("@", String.valueOf(i));
            files.add(Files.writeString(sources.resolve("Generated" + i + ".kt"), text));
        }
        String[] arguments = with(List.of("-no-stdlib", "-no-reflect", "-nowarn", "-classpath",
                System.getProperty("java.class.path"), "-d", directory.resolve("kotlin-out").toString()), files);
        while (!over()) {
            var exit = new K2JVMCompiler().exec(new PrintStream(System.out), arguments);
            if (exit.getCode() != 0) {
                throw new IllegalStateException("kotlin: " + exit);
            }
        }
    }

    /** A web server, and who asks it, on loopback. */
    static void jetty(Path directory) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) {
                StringBuilder text = new StringBuilder();
                request.getHeaders().forEach(field -> text.append(field.getName()).append('=').append(field.getValue()));
                for (int i = 0; i < 200; i++) {
                    text.append(Integer.toHexString(text.toString().hashCode() + i));
                }
                Content.Sink.write(response, true, text.toString(), callback);
                return true;
            }
        });
        server.start();
        URI uri = URI.create("http://127.0.0.1:" + ((ServerConnector) server.getConnectors()[0]).getLocalPort() + "/cart?n=1");
        List<Thread> clients = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread t = new Thread(() -> {
                try {
                    while (!over()) {
                        try (InputStream in = uri.toURL().openConnection().getInputStream()) {
                            in.readAllBytes();
                        }
                    }
                } catch (IOException e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            }, "client-" + i);
            t.start();
            clients.add(t);
        }
        for (Thread t : clients) {
            t.join();
        }
        server.stop();
    }

    static void h2(Path directory) throws Exception {
        Random random = new Random(1);
        try (Connection c = DriverManager.getConnection("jdbc:h2:mem:shop"); Statement s = c.createStatement()) {
            s.execute("create table customer(id int primary key, name varchar, city varchar)");
            s.execute("create table purchase(id int primary key auto_increment, customer int, price decimal(10, 2))");
            s.execute("create index of_customer on purchase(customer)");
            PreparedStatement customer = c.prepareStatement("merge into customer values (?, ?, ?)");
            PreparedStatement purchase = c.prepareStatement("insert into purchase(customer, price) values (?, ?)");
            while (!over()) {
                for (int i = 0; i < 1000; i++) {
                    customer.setInt(1, i);
                    customer.setString(2, "customer " + random.nextInt());
                    customer.setString(3, "city " + random.nextInt(50));
                    customer.execute();
                    purchase.setInt(1, random.nextInt(1000));
                    purchase.setDouble(2, random.nextInt(100000) / 100.0);
                    purchase.execute();
                }
                try (ResultSet r = s.executeQuery("select city, count(*), sum(price), max(upper(name)) from customer "
                        + "join purchase on purchase.customer = customer.id where name like '%7%' group by city order by 3 desc")) {
                    while (r.next()) {
                        r.getString(1).hashCode();
                    }
                }
                s.execute("delete from purchase where id < (select max(id) from purchase) - 20000");
            }
        }
    }

    static void lucene(Path directory) throws Exception {
        Random random = new Random(1);
        while (!over()) {
            try (ByteBuffersDirectory index = new ByteBuffersDirectory()) {
                try (IndexWriter writer = new IndexWriter(index, new IndexWriterConfig(new StandardAnalyzer()))) {
                    for (int i = 0; i < 2000; i++) {
                        StringBuilder text = new StringBuilder();
                        for (int k = 0; k < 200; k++) {
                            text.append("word").append((int) Math.abs(random.nextGaussian() * 500)).append(k % 11 == 0 ? ". " : " ");
                        }
                        Document d = new Document();
                        d.add(new TextField("text", text.toString(), Field.Store.YES));
                        writer.addDocument(d);
                    }
                }
                try (DirectoryReader reader = DirectoryReader.open(index)) {
                    IndexSearcher searcher = new IndexSearcher(reader);
                    for (int i = 0; i < 500; i++) {
                        BooleanQuery.Builder query = new BooleanQuery.Builder();
                        for (int k = 0; k < 3; k++) {
                            query.add(new TermQuery(new Term("text", "word" + random.nextInt(1500))), BooleanClause.Occur.SHOULD);
                        }
                        searcher.search(query.build(), 10).totalHits.toString().getBytes(StandardCharsets.UTF_8);
                    }
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        end = System.currentTimeMillis() + Long.parseLong(arguments[0]) * 1000;
        Path directory = Path.of(arguments[2]);
        System.out.println("begin " + System.getProperty("java.version"));
        switch (arguments[1]) {
            case "javac" -> javac(directory);
            case "kotlin" -> kotlin(directory);
            case "jetty" -> jetty(directory);
            case "h2" -> h2(directory);
            case "lucene" -> lucene(directory);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.out.println("end");
    }
}
