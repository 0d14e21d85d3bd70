import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Receives and acknowledges all that comes on topics, and writes "producer number message-id" of each message as a line.
 *
 * <p>Arguments: service URL, topics (commas between), subscription, the file to write to, whose first line is
 * "subscribed". Ends by SIGTERM, closes then, and writes "closed" as its last line.
 */
public final class Receivers {
    private static final int RECEIVE_MILLIS = 200;
    private static volatile boolean ending;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(args[3]), true, StandardCharsets.UTF_8);
        PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).ioThreads(1).listenerThreads(1).build();
        Consumer<byte[]> consumer = client.newConsumer()
                .topics(Arrays.asList(args[1].split(","))).subscriptionName(args[2]).subscribe();
        out.println("subscribed");
        Thread receiving = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ending = true;
            try {
                receiving.join(TimeUnit.SECONDS.toMillis(30));
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!ending) {
            Message<byte[]> message = consumer.receive(RECEIVE_MILLIS, TimeUnit.MILLISECONDS);
            if (message != null) {
                String[] words = new String(message.getData(), StandardCharsets.UTF_8).split(" ", 3);
                out.println(words[0] + " " + words[1] + " " + message.getMessageId());
                consumer.acknowledgeAsync(message);
            }
        }
        consumer.close();
        client.close();
        out.println("closed");
    }
}
