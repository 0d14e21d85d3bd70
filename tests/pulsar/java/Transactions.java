import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Moves messages from one topic to another in transactions, and writes what came of each step as one JSON object a line.
 *
 * <p>Arguments: service URL, topic to take from, topic to send to, messages of a step, the file to write to, and a file
 * for whose coming the last transaction stays open. Steps: a transaction that is committed, one that is aborted, one
 * that is neither until its time is over, one that is committed after that file has come.
 */
public final class Transactions {
    private static final int QUIET_MILLIS = 500;
    private static final int PATIENCE_SECONDS = 120;
    private static final int OVER_SECONDS = 8;
    private static int count;
    private static PrintStream out;
    private static PulsarClient client;
    private static Consumer<byte[]> taker;
    private static Consumer<byte[]> looker;
    private static Producer<byte[]> filler;
    private static Producer<byte[]> sender;

    public static void main(String[] args) throws Exception {
        count = Integer.parseInt(args[3]);
        out = new PrintStream(new FileOutputStream(args[4]), true, StandardCharsets.UTF_8);
        client = PulsarClient.builder()
                .serviceUrl(args[0]).ioThreads(1).listenerThreads(1).enableTransaction(true)
                .operationTimeout(PATIENCE_SECONDS, TimeUnit.SECONDS).build();
        taker = subscribe(args[1], "takes");
        looker = subscribe(args[2], "looks");
        filler = client.newProducer().topic(args[1]).create();
        // A transaction does not know when a send would fail: none does.
        sender = client.newProducer().topic(args[2]).sendTimeout(0, TimeUnit.SECONDS).create();
        committed();
        aborted(args[1]);
        timedOut();
        keptOpen(Path.of(args[5]));
        client.close();
        print("{\"step\": \"closed\"}");
    }

    private static void committed() throws Exception {
        fill("committed");
        Transaction transaction = begin(PATIENCE_SECONDS);
        move(transaction);
        int before = seen();
        transaction.commit().get();
        print(String.format("{\"step\": \"committed\", \"before\": %d, \"after\": %d}", before, received()));
    }

    private static void aborted(String from) throws Exception {
        fill("aborted");
        Transaction transaction = begin(PATIENCE_SECONDS);
        move(transaction);
        transaction.abort().get();
        int seen = seen();
        // What was acknowledged in the transaction comes again.
        taker.close();
        taker = subscribe(from, "takes");
        Set<String> again = new HashSet<>();
        while (again.size() < count) {
            Message<byte[]> message = taker.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
            again.add(new String(message.getValue(), StandardCharsets.UTF_8));
            taker.acknowledge(message);
        }
        print(String.format("{\"step\": \"aborted\", \"seen\": %d, \"again\": %d}", seen, again.size()));
    }

    private static void timedOut() throws Exception {
        Transaction transaction = begin(1);
        sender.newMessage(transaction).value("late".getBytes(StandardCharsets.UTF_8)).send();
        Thread.sleep(OVER_SECONDS * 1000);
        boolean refused = false;
        try {
            transaction.commit().get();
        } catch (Exception expected) {
            refused = true;
        }
        print(String.format("{\"step\": \"timed_out\", \"refused\": %b, \"seen\": %d}", refused, seen()));
    }

    private static void keptOpen(Path until) throws Exception {
        fill("kept");
        Transaction transaction = begin(10 * PATIENCE_SECONDS);
        move(transaction);
        print("{\"step\": \"open\"}");
        while (!Files.exists(until)) {
            Thread.sleep(20);
        }
        transaction.commit().get();
        print(String.format("{\"step\": \"kept_open\", \"after\": %d}", received()));
    }

    private static Consumer<byte[]> subscribe(String topic, String name) throws Exception {
        return client.newConsumer().topic(topic).subscriptionName(name)
                .subscriptionType(SubscriptionType.Shared).subscribe();
    }

    private static Transaction begin(int seconds) throws Exception {
        return client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get();
    }

    private static void fill(String name) throws Exception {
        for (int number = 0; number < count; number++) {
            filler.send((name + " " + number).getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void move(Transaction transaction) throws Exception {
        for (int number = 0; number < count; number++) {
            Message<byte[]> message = taker.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
            sender.newMessage(transaction).value(message.getValue()).send();
            taker.acknowledgeAsync(message.getMessageId(), transaction).get();
        }
    }

    /** Count what is there and should not be. */
    private static int seen() throws Exception {
        int found = 0;
        Message<byte[]> message;
        while ((message = looker.receive(QUIET_MILLIS, TimeUnit.MILLISECONDS)) != null) {
            looker.acknowledge(message);
            found++;
        }
        return found;
    }

    /** Receive what is due, and count it with what is there beside. */
    private static int received() throws Exception {
        Set<String> found = new HashSet<>();
        while (found.size() < count) {
            Message<byte[]> message = looker.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                return found.size();
            }
            found.add(new String(message.getValue(), StandardCharsets.UTF_8));
            looker.acknowledge(message);
        }
        return count + seen();
    }

    private static void print(String line) {
        out.println(line);
    }
}
