import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;

/**
 * Runs pattern consumers, a client of its own each, and writes what they know as one JSON object a line.
 *
 * <p>Arguments: service URL, pattern, number of consumers, seconds between two rounds of polling for topics, the file to
 * write to (the standard output is the client's log). Ends by SIGTERM.
 */
public final class PatternConsumers {
    private static final long LOOK_MILLIS = 20;
    private static PrintStream out;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        out = new PrintStream(new FileOutputStream(args[4]), true, StandardCharsets.UTF_8);
        List<CompletableFuture<Consumer<byte[]>>> subscribing = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int own = number;
            PulsarClient client =
                    PulsarClient.builder().serviceUrl(args[0]).ioThreads(1).listenerThreads(1).build();
            subscribing.add(client.newConsumer()
                    .topicsPattern(args[1])
                    .subscriptionName("java-" + number)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .patternAutoDiscoveryPeriod(Integer.parseInt(args[3]), TimeUnit.SECONDS)
                    .messageListener((consumer, message) -> received(own, consumer, message))
                    .subscribeAsync());
        }
        List<Set<String>> known = new ArrayList<>();
        List<MultiTopicsConsumerImpl<byte[]>> consumers = new ArrayList<>();
        for (CompletableFuture<Consumer<byte[]>> subscribed : subscribing) {
            consumers.add((MultiTopicsConsumerImpl<byte[]>) subscribed.get());
            known.add(new HashSet<>());
            print(consumers.size() - 1, "subscribed", "");
        }
        while (true) {
            for (int number = 0; number < count; number++) {
                known.set(number, report(number, known.get(number), new HashSet<>(consumers.get(number).getPartitions())));
            }
            Thread.sleep(LOOK_MILLIS);
        }
    }

    private static Set<String> report(int consumer, Set<String> before, Set<String> now) {
        now.stream().filter(topic -> !before.contains(topic)).sorted().forEach(topic -> print(consumer, "added", topic));
        before.stream().filter(topic -> !now.contains(topic)).sorted().forEach(topic -> print(consumer, "removed", topic));
        return now;
    }

    private static void received(int number, Consumer<byte[]> consumer, Message<byte[]> message) {
        print(number, "received", message.getTopicName());
        consumer.acknowledgeAsync(message);
    }

    private static synchronized void print(int consumer, String event, String topic) {
        out.printf(
                "{\"consumer\": %d, \"event\": \"%s\", \"topic\": \"%s\", \"millis\": %d}%n",
                consumer, event, topic, System.currentTimeMillis());
    }
}
