import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Publishes to Kafka, or reads from it, by its own Java client.
 *
 * <pre>
 * produce ADDRESS TOPIC BYTES WARM_SECONDS SECONDS BATCH_BYTES   one producer that batches, as fast as it can
 * singles ADDRESS TOPIC BYTES WARM_SECONDS SECONDS PRODUCERS     a message a request; each producer waits for each answer
 * flying  ADDRESS TOPIC BYTES WARM_SECONDS SECONDS IN_FLIGHT     one producer, a message a request, so many unanswered
 * fill    ADDRESS TOPIC BYTES 0 MESSAGES BATCH_BYTES             publishes so many messages, which nothing counts
 * consume ADDRESS TOPIC MESSAGES WARM_SECONDS SECONDS            reads all of it, again and again
 * </pre>
 *
 * Its tools (kafka-producer-perf-test) cannot give messages keys, so this is written here. Values are random and do not
 * compress, under a thousand keys, as those of the other benches; single ones have no keys. It says `began` when it begins to count, and then how
 * many messages were acknowledged or read, and in how many seconds.
 */
public final class KafkaLoad {
    private static final int KEYS = 1000;

    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private final byte[][] keys = new byte[KEYS][];
    private final byte[][] values = new byte[KEYS][];
    private final String address;
    private final String topic;
    private volatile boolean ended;

    private KafkaLoad(String address, String topic, int bytes) {
        this.address = address;
        this.topic = topic;
        Random random = new Random(1);
        for (int row = 0; row < KEYS; row++) {
            keys[row] = ("user-" + row).getBytes(StandardCharsets.US_ASCII);
            values[row] = new byte[bytes];
            random.nextBytes(values[row]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String what = arguments[0];
        if (what.equals("consume")) {
            double warmSeconds = Double.parseDouble(arguments[4]);
            consume(arguments[1], arguments[2], Long.parseLong(arguments[3]), warmSeconds, Double.parseDouble(arguments[5]));
            return;
        }
        KafkaLoad load = new KafkaLoad(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        double warmSeconds = Double.parseDouble(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        int number = Integer.parseInt(arguments[6]);
        switch (what) {
            case "fill" -> load.fill(load.batching(number), (long) seconds);
            case "produce" -> load.measure(1, warmSeconds, seconds, () -> load.sendAll(load.batching(number), true));
            case "singles" -> load.measure(number, warmSeconds, seconds, () -> load.sendEach(load.single(1)));
            case "flying" -> load.measure(1, warmSeconds, seconds, () -> load.sendAll(load.single(number), false));
            default -> throw new IllegalArgumentException("produce, singles, flying, fill or consume: not " + what);
        }
    }

    private KafkaProducer<byte[], byte[]> batching(int batchBytes) {
        Properties settings = settings();
        settings.put("batch.size", batchBytes);
        // A batch of so many bytes and its frame have to fit into one request.
        settings.put("max.request.size", 2 * batchBytes);
        settings.put("buffer.memory", 64L * 1024 * 1024);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaProducer<byte[], byte[]> single(int inFlight) {
        Properties settings = settings();
        settings.put("batch.size", 0);
        settings.put("linger.ms", 0);
        settings.put("max.in.flight.requests.per.connection", inFlight);
        settings.put("buffer.memory", 4L * 1024 * 1024);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("acks", "all");
        return settings;
    }

    private void measure(int threads, double warmSeconds, double seconds, Runnable sending) throws Exception {
        CountDownLatch over = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            new Thread(() -> {
                try {
                    sending.run();
                } catch (RuntimeException error) {
                    failure.compareAndSet(null, error);
                }
                over.countDown();
            }).start();
        }
        Thread.sleep((long) (warmSeconds * 1000));
        say("began");
        long before = acknowledged.get();
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long count = acknowledged.get() - before;
        double took = (System.nanoTime() - began) / 1e9;
        ended = true;
        tell(count, took);
        over.await();
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Sends without waiting, as far as the producer's buffer reaches. */
    private void sendAll(KafkaProducer<byte[], byte[]> producer, boolean hasKeys) {
        try (producer) {
            for (int row = 0; !ended && failure.get() == null; row = (row + 1) % KEYS) {
                send(producer, hasKeys ? keys[row] : null, values[row]);
            }
        }
    }

    private void fill(KafkaProducer<byte[], byte[]> producer, long messages) throws Exception {
        say("began");
        long began = System.nanoTime();
        try (producer) {
            for (long number = 0; number < messages && failure.get() == null; number++) {
                int row = (int) (number % KEYS);
                send(producer, keys[row], values[row]);
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        tell(acknowledged.get(), (System.nanoTime() - began) / 1e9);
    }

    private void send(KafkaProducer<byte[], byte[]> producer, byte[] key, byte[] value) {
        producer.send(new ProducerRecord<>(topic, key, value), (metadata, error) -> {
            if (error == null) {
                acknowledged.incrementAndGet();
            } else {
                failure.compareAndSet(null, error);
            }
        });
    }

    /** Waits for the answer to each message. */
    private void sendEach(KafkaProducer<byte[], byte[]> producer) {
        try (producer) {
            for (int row = 0; !ended && failure.get() == null; row = (row + 1) % KEYS) {
                producer.send(new ProducerRecord<>(topic, values[row])).get();
                acknowledged.incrementAndGet();
            }
        } catch (Exception error) {
            failure.compareAndSet(null, error);
        }
    }

    private static void consume(String address, String topic, long messages, double warmSeconds, double seconds) {
        readFor(address, topic, messages, warmSeconds);
        say("began");
        long began = System.nanoTime();
        long count = readFor(address, topic, messages, seconds);
        tell(count, (System.nanoTime() - began) / 1e9);
    }

    /** Reads the topic at least once, each time with a new consumer. */
    private static long readFor(String address, String topic, long messages, double seconds) {
        long began = System.nanoTime();
        long count = 0;
        do {
            readOnce(address, topic, messages);
            count += messages;
        } while ((System.nanoTime() - began) / 1e9 < seconds);
        return count;
    }

    private static void readOnce(String address, String topic, long messages) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(each -> new TopicPartition(topic, each.partition()))
                    .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long count = 0;
            long bytes = 0;
            while (count < messages) {
                for (var message : consumer.poll(Duration.ofSeconds(10))) {
                    count++;
                    bytes += message.key().length + message.value().length;
                }
            }
            if (count != messages || bytes == 0) {
                throw new IllegalStateException(count + " of " + messages + " messages were read");
            }
        }
    }

    private static void tell(long count, double seconds) {
        say("{\"messages\": " + count + ", \"seconds\": " + seconds + "}");
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
