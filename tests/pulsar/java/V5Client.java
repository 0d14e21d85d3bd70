import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientBuilder;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.auth.AuthenticationFactory;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Does what the V5 client of Pulsar 5.0 is for, and writes what came of each scenario as one JSON object a line.
 *
 * <p>Arguments: service URL, a namespace of its own, a token ("" for none), the file to write to. A scenario that fails
 * is written with its error, and the next one begins; one that waits for a message in vain has none.
 */
public final class V5Client {
    private static final int COUNT = 20;
    private static final int QUIET_MILLIS = 300;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static PrintStream out;
    private static PulsarClient client;
    private static String scalable;
    private static String namespace;

    /** A scenario: what it saw, as the fields of a JSON object. */
    private interface Scenario {
        String run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        namespace = args[1];
        scalable = "topic://" + namespace + "/scalable";
        out = new PrintStream(new FileOutputStream(args[3]), true, StandardCharsets.UTF_8);
        PulsarClientBuilder builder = PulsarClient.builder().serviceUrl(args[0]).operationTimeout(PATIENCE)
                .transactionPolicy(TransactionPolicy.builder().timeout(PATIENCE.multipliedBy(2)).build());
        if (!args[2].isEmpty()) {
            builder.authentication(AuthenticationFactory.token(args[2]));
        }
        try {
            client = builder.build();
        } catch (Exception failure) {
            say("client", "\"error\": \"" + text(failure) + "\"");
            return;
        }
        attempt("produce", () -> sent(scalable, "first"));
        attempt("queue", () -> queued(scalable));
        attempt("stream", V5Client::streamed);
        attempt("namespace", V5Client::watched);
        attempt("regular", V5Client::regular);
        attempt("transaction", V5Client::transacted);
        client.close();
        say("closed", "\"error\": null");
    }

    private static void attempt(String name, Scenario scenario) {
        try {
            say(name, scenario.run());
        } catch (Exception failure) {
            say(name, "\"error\": \"" + text(failure) + "\"");
        }
    }

    private static String sent(String topic, String word) throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create()) {
            for (int number = 0; number < COUNT; number++) {
                producer.newMessage().value(word + " " + number).send();
            }
        }
        return "\"sent\": " + COUNT;
    }

    private static String queued(String topic) throws Exception {
        try (QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string()).topic(topic)
                .subscriptionName("queue").subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
            return "\"received\": " + received(consumer, COUNT);
        }
    }

    private static String streamed() throws Exception {
        try (StreamConsumer<String> consumer = client.newStreamConsumer(Schema.string()).topic(scalable)
                .subscriptionName("stream").subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
            Set<String> values = new TreeSet<>();
            Message<String> message;
            while (values.size() < COUNT && (message = consumer.receive(PATIENCE)) != null) {
                values.add(message.value());
                consumer.acknowledgeCumulative(message.id());
            }
            return "\"received\": " + values.size();
        }
    }

    /** Consume a namespace, in which a topic is made while the consumer is there. */
    private static String watched() throws Exception {
        try (QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string()).namespace(namespace)
                .subscriptionName("namespace").subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe()) {
            int before = received(consumer, COUNT);
            sent("topic://" + namespace + "/later", "later");
            return "\"received\": " + before + ", \"later\": " + received(consumer, COUNT);
        }
    }

    private static String regular() throws Exception {
        String topic = "persistent://" + namespace + "/regular";
        return sent(topic, "regular") + ", " + queued(topic);
    }

    private static String transacted() throws Exception {
        String topic = "topic://" + namespace + "/transactions";
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create();
                QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string()).topic(topic)
                        .subscriptionName("queue").subscribe()) {
            Transaction aborted = client.newTransaction();
            producer.newMessage().transaction(aborted).value("aborted").send();
            aborted.abort();
            Transaction transaction = client.newTransaction();
            for (int number = 0; number < COUNT; number++) {
                producer.newMessage().transaction(transaction).value("committed " + number).send();
            }
            boolean seen = consumer.receive(Duration.ofMillis(QUIET_MILLIS)) != null;
            transaction.commit();
            return "\"seen_before\": " + seen + ", \"received\": " + received(consumer, COUNT)
                    + ", \"seen_after\": " + (consumer.receive(Duration.ofMillis(QUIET_MILLIS)) != null);
        }
    }

    /** Receive until there are so many values, and count them. */
    private static int received(QueueConsumer<String> consumer, int count) throws Exception {
        Set<String> values = new TreeSet<>();
        Message<String> message;
        while (values.size() < count && (message = consumer.receive(PATIENCE)) != null) {
            values.add(message.value());
            consumer.acknowledge(message.id());
        }
        return values.size();
    }

    private static String text(Exception failure) {
        return String.valueOf(failure).replaceAll("[\\p{Cntrl}\"\\\\]", " ");
    }

    private static void say(String scenario, String fields) {
        out.println("{\"scenario\": \"" + scenario + "\", " + fields + "}");
    }
}
