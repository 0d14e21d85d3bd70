import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SizeUnit;

/**
 * Runs producers, a client and so a connection each, that send at a fixed rate whatever is acknowledged, and writes what
 * they know as one JSON object a line.
 *
 * <p>Arguments: service URL, topics (commas between; each producer takes the next), name, number of producers, messages
 * a second of each (0: none), bytes of a message, seconds between keep-alives, milliseconds until a send fails (0:
 * never), most messages of a producer that are not acknowledged (those beyond are withheld), the file to write to. Each
 * message begins with the producer's name, its number and the microsecond (Unix time) at which it was due. By SIGTERM they stop to send, wait for what is acknowledged, close and write their last lines.
 */
public final class Producers {
    private static final long STEP_MILLIS = 10;
    private static final long TOLD_MILLIS = 100;
    private static final long END_SECONDS = 100;
    private static PrintStream out;
    private static volatile boolean ending;
    private static final CountDownLatch ended = new CountDownLatch(1);

    private static final class Sender {
        final String name;
        final PulsarClient client;
        final Producer<byte[]> producer;
        final AtomicLong acked = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        volatile long sent;
        long offered;
        volatile long withheld;
        private String told = "";

        Sender(String name, PulsarClient client, Producer<byte[]> producer) {
            this.name = name;
            this.client = client;
            this.producer = producer;
        }

        void send(byte[] filler, long dueMicros) {
            long number = sent;
            byte[] head = (name + " " + number + " " + dueMicros + " ").getBytes(StandardCharsets.UTF_8);
            byte[] message = Arrays.copyOf(head, Math.max(head.length, filler.length));
            Arrays.fill(message, head.length, message.length, (byte) '.');
            sent = number + 1;
            producer.sendAsync(message).whenComplete((id, error) -> {
                if (error == null) {
                    acked.incrementAndGet();
                } else {
                    failed.incrementAndGet();
                    print(String.format("{\"producer\": \"%s\", \"failed\": %d, \"why\": \"%s\"}",
                            name, number, error.getClass().getSimpleName()));
                }
            });
        }

        void tell(boolean closed) {
            String line = String.format(
                    "{\"producer\": \"%s\", \"sent\": %d, \"acked\": %d, \"withheld\": %d, \"closed\": %b}",
                    name, sent, acked.get(), withheld, closed);
            if (!line.equals(told)) {
                told = line;
                print(line);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String[] topics = args[1].split(",");
        int count = Integer.parseInt(args[3]);
        double perSecond = Double.parseDouble(args[4]);
        byte[] filler = new byte[Integer.parseInt(args[5])];
        long mostPending = Long.parseLong(args[8]);
        out = new PrintStream(new FileOutputStream(args[9]), true, StandardCharsets.UTF_8);
        Sender[] senders = new Sender[count];
        for (int number = 0; number < count; number++) {
            PulsarClient client = PulsarClient.builder()
                    .serviceUrl(args[0]).ioThreads(1).listenerThreads(1).memoryLimit(0, SizeUnit.BYTES)
                    .keepAliveInterval(Integer.parseInt(args[6]), TimeUnit.SECONDS).build();
            String name = args[2] + "-" + number;
            Producer<byte[]> producer = client.newProducer()
                    .topic(topics[number % topics.length]).producerName(name).enableBatching(false)
                    .maxPendingMessages(0).sendTimeout(Integer.parseInt(args[7]), TimeUnit.MILLISECONDS).create();
            senders[number] = new Sender(name, client, producer);
            senders[number].tell(false);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(Producers::end));
        sendAll(List.of(senders), perSecond, mostPending, filler);
        for (Sender sender : senders) {
            // A send that failed is counted; the others go on.
            sender.producer.flushAsync().handle((done, error) -> null).get();
            sender.producer.close();
            sender.tell(true);
            sender.client.close();
        }
        ended.countDown();
    }

    private static void sendAll(List<Sender> senders, double perSecond, long mostPending, byte[] filler)
            throws InterruptedException {
        long began = System.nanoTime();
        long beganMicros = System.currentTimeMillis() * 1000;
        long told = began;
        while (!ending) {
            long now = System.nanoTime();
            long due = (long) ((now - began) / 1e9 * perSecond);
            for (Sender sender : senders) {
                while (sender.offered < due && !ending) {
                    long dueMicros = beganMicros + (long) (sender.offered++ / perSecond * 1e6);
                    if (sender.sent - sender.acked.get() - sender.failed.get() < mostPending) {
                        sender.send(filler, dueMicros);
                    } else {
                        sender.withheld++;
                    }
                }
            }
            if (now - told >= TOLD_MILLIS * 1_000_000) {
                told = now;
                senders.forEach(sender -> sender.tell(false));
            }
            Thread.sleep(STEP_MILLIS);
        }
    }

    private static void end() {
        ending = true;
        try {
            ended.await(END_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static synchronized void print(String line) {
        out.println(line);
    }
}
