import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SizeUnit;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;

/**
 * Plays producers, receivers and pattern consumers, as many as it is told to: each line of the standard input starts one
 * role or ends it, words apart by tabs. A role writes what it knows to its file, a line an event, and "over" at last;
 * the standard output is the clients' log. The program ends with its input.
 *
 * <ul>
 *   <li>"produce FILE URL TOPICS NAME COUNT RATE BYTES KEEP-ALIVE TIME-OUT PENDING": so many producers, a client and so a
 *       connection each, that send at a fixed rate whatever is acknowledged. Topics have commas between, each producer
 *       takes the next; the rate is messages a second (0: none), then seconds between keep-alives, milliseconds until a
 *       send fails (0: never), and the most messages of a producer that are not acknowledged (those beyond are withheld).
 *       A message begins with the producer's name, its number and the microsecond (Unix time) at which it was due. Told
 *       to stop they send no more, wait for what is acknowledged, and close.
 *   <li>"receive FILE URL TOPICS SUBSCRIPTION": receives and acknowledges all that comes.
 *   <li>"watch FILE URL PATTERN COUNT POLL": so many pattern consumers, a client each, with so many seconds between two
 *       rounds of polling for topics.
 *   <li>"exchange FILE URL TOPIC COUNT BYTES AUTHORITIES PLUGIN PARAMETERS": sends messages with credentials, and tells
 *       the number of each that arrives and how long it is; each has so many bytes behind its number.
 *   <li>"stop FILE"
 * </ul>
 */
public final class Clients {
    private static final long STEP_MILLIS = 10;
    private static final long TOLD_MILLIS = 100;

    private abstract static class Role implements Runnable {
        final String[] words;
        final PrintStream out;
        final List<PulsarClient> clients = new ArrayList<>();
        volatile boolean ending;

        Role(String[] words) throws Exception {
            this.words = words;
            out = new PrintStream(new FileOutputStream(words[1]), true, StandardCharsets.UTF_8);
        }

        abstract void work() throws Exception;

        @Override
        public void run() {
            try {
                work();
                for (PulsarClient client : clients) {
                    client.close();
                }
            } catch (Exception error) {
                error.printStackTrace(System.out);
            }
            tell("over");
        }

        ClientBuilder builder() {
            return PulsarClient.builder().serviceUrl(words[2]).ioThreads(1).listenerThreads(1);
        }

        PulsarClient added(PulsarClient client) {
            clients.add(client);
            return client;
        }

        synchronized void tell(String line) {
            out.println(line);
        }
    }

    private static final class Sender {
        final Role role;
        final String name;
        final Producer<byte[]> producer;
        final AtomicLong acked = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        volatile long sent;
        long offered;
        long withheld;
        private String told = "";

        Sender(Role role, String name, Producer<byte[]> producer) {
            this.role = role;
            this.name = name;
            this.producer = producer;
        }

        void send(int bytes, long dueMicros) {
            long number = sent;
            byte[] head = (name + " " + number + " " + dueMicros + " ").getBytes(StandardCharsets.UTF_8);
            byte[] message = Arrays.copyOf(head, Math.max(head.length, bytes));
            Arrays.fill(message, head.length, message.length, (byte) '.');
            sent = number + 1;
            producer.sendAsync(message).whenComplete((id, error) -> {
                if (error == null) {
                    acked.incrementAndGet();
                } else {
                    failed.incrementAndGet();
                    role.tell("failed " + name + " " + number);
                }
            });
        }

        void tell(boolean closed) {
            String line = "sent " + name + " " + sent + " " + acked.get() + " " + withheld + " " + (closed ? 1 : 0);
            if (!line.equals(told)) {
                told = line;
                role.tell(line);
            }
        }
    }

    private static final class Producers extends Role {
        Producers(String[] words) throws Exception {
            super(words);
        }

        @Override
        void work() throws Exception {
            String[] topics = words[3].split(",");
            List<Sender> senders = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(words[5]); number++) {
                PulsarClient client = added(builder()
                        .memoryLimit(0, SizeUnit.BYTES)
                        .keepAliveInterval(Integer.parseInt(words[8]), TimeUnit.SECONDS).build());
                String name = words[4] + "-" + number;
                senders.add(new Sender(this, name, client.newProducer()
                        .topic(topics[number % topics.length]).producerName(name).enableBatching(false)
                        .maxPendingMessages(0)
                        .sendTimeout(Integer.parseInt(words[9]), TimeUnit.MILLISECONDS).create()));
                senders.get(number).tell(false);
            }
            sendAll(senders, Double.parseDouble(words[6]), Integer.parseInt(words[7]), Long.parseLong(words[10]));
            for (Sender sender : senders) {
                // A send that failed is counted; the others go on.
                sender.producer.flushAsync().handle((done, error) -> null).get();
                sender.producer.close();
                sender.tell(true);
            }
        }

        private void sendAll(List<Sender> senders, double perSecond, int bytes, long mostPending)
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
                            sender.send(bytes, dueMicros);
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
    }

    private static final class Receiver extends Role {
        Receiver(String[] words) throws Exception {
            super(words);
        }

        @Override
        void work() throws Exception {
            Consumer<byte[]> consumer = added(builder().build()).newConsumer()
                    .topics(Arrays.asList(words[3].split(","))).subscriptionName(words[4]).subscribe();
            tell("subscribed");
            while (!ending) {
                Message<byte[]> message = consumer.receive(2 * (int) TOLD_MILLIS, TimeUnit.MILLISECONDS);
                if (message != null) {
                    String[] said = new String(message.getData(), StandardCharsets.UTF_8).split(" ", 3);
                    tell("message " + said[0] + " " + said[1] + " " + message.getMessageId());
                    consumer.acknowledgeAsync(message);
                }
            }
            consumer.close();
        }
    }

    private static final class Exchange extends Role {
        Exchange(String[] words) throws Exception {
            super(words);
        }

        @Override
        void work() throws Exception {
            PulsarClient client = added(builder().tlsTrustCertsFilePath(words[6]).enableTlsHostnameVerification(true)
                    .authentication(words[7], words[8]).build());
            Consumer<byte[]> consumer = client.newConsumer().topic(words[3]).subscriptionName("takes").subscribe();
            Producer<byte[]> producer = client.newProducer().topic(words[3]).create();
            int count = Integer.parseInt(words[4]);
            String filling = ".".repeat(Integer.parseInt(words[5]));
            for (int number = 0; number < count; number++) {
                producer.send((number + " " + filling).getBytes(StandardCharsets.UTF_8));
            }
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = consumer.receive();
                consumer.acknowledge(message);
                String text = new String(message.getData(), StandardCharsets.UTF_8);
                tell(text.substring(0, text.indexOf('.')) + text.length());
            }
        }
    }

    private static final class PatternConsumers extends Role {
        PatternConsumers(String[] words) throws Exception {
            super(words);
        }

        @Override
        void work() throws Exception {
            List<CompletableFuture<Consumer<byte[]>>> subscribing = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(words[4]); number++) {
                int own = number;
                subscribing.add(added(builder().build()).newConsumer()
                        .topicsPattern(words[3])
                        .subscriptionName("java-" + number)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .patternAutoDiscoveryPeriod(Integer.parseInt(words[5]), TimeUnit.SECONDS)
                        .messageListener((consumer, message) -> {
                            tell(own, "received", message.getTopicName());
                            consumer.acknowledgeAsync(message);
                        })
                        .subscribeAsync());
            }
            List<Set<String>> known = new ArrayList<>();
            List<MultiTopicsConsumerImpl<byte[]>> consumers = new ArrayList<>();
            for (CompletableFuture<Consumer<byte[]>> subscribed : subscribing) {
                consumers.add((MultiTopicsConsumerImpl<byte[]>) subscribed.get());
                known.add(new HashSet<>());
                tell(consumers.size() - 1, "subscribed", "-");
            }
            while (!ending) {
                for (int number = 0; number < consumers.size(); number++) {
                    Set<String> now = new HashSet<>(consumers.get(number).getPartitions());
                    difference(number, "added", now, known.get(number));
                    difference(number, "removed", known.set(number, now), now);
                }
                Thread.sleep(2 * STEP_MILLIS);
            }
        }

        private void difference(int consumer, String event, Set<String> more, Set<String> less) {
            more.stream().filter(topic -> !less.contains(topic)).sorted().forEach(topic -> tell(consumer, event, topic));
        }

        private void tell(int consumer, String event, String topic) {
            tell(consumer + " " + event + " " + topic + " " + System.currentTimeMillis());
        }
    }

    private static Role role(String[] words) throws Exception {
        switch (words[0]) {
            case "produce":
                return new Producers(words);
            case "receive":
                return new Receiver(words);
            case "exchange":
                return new Exchange(words);
            default:
                return new PatternConsumers(words);
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Role> roles = new HashMap<>();
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = told.readLine(); line != null; line = told.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("stop")) {
                roles.remove(words[1]).ending = true;
            } else {
                Role role = role(words);
                roles.put(words[1], role);
                Thread thread = new Thread(role, words[1]);
                thread.setDaemon(true);
                thread.start();
            }
        }
        System.exit(0);
    }
}
