package kiwigw.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * The way of the rows of one run to a Kafka topic: each at once, and none that is there already.
 *
 * <p>The driver's Python opens and closes it, by the number of the run; the sinks of the query find it by that number,
 * and its tasks write side by side. A row that is not taken ends the run: what it comes from is not noted as done.
 */
public final class TopicLink {
  private static final Map<Long, TopicLink> LINKS = new ConcurrentHashMap<>();

  /** How long what is on its way when the run is over may take: the next run has to know whether it is there. */
  private static final Duration PATIENCE = Duration.ofSeconds(5);

  private final KafkaProducer<byte[], byte[]> producer;
  private final String topic;
  private final String[] inputs;
  private final WrittenPlaces written;
  private final Closeable lock;
  private final Object closing = new Object();
  private volatile boolean over;
  private volatile boolean reads;
  private volatile boolean wrote;
  private volatile Runnable onFailure = () -> {};
  private volatile RuntimeException failure;

  private TopicLink(Map<String, Object> options, String topic, String inputs, String begin, Closeable lock) {
    Map<String, Object> all = new HashMap<>(options);
    all.put("enable.idempotence", true); // rows keep their order, and none is twice there, when it tries again
    this.producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    this.topic = topic;
    this.inputs = inputs.split(",");
    this.written = new WrittenPlaces(begin);
    this.lock = lock;
  }

  /**
   * Open it. options: of Kafka's clients. inputs: the query's streams in order, with commas between them. begin: as in
   * `WrittenPlaces`. folder: the checkpoint's, empty if it is not of this machine. StillWritten: another process has one.
   */
  public static void open(
      long run, Map<String, Object> options, String topic, String inputs, String begin, String folder)
      throws IOException {
    Closeable lock = folder.isEmpty() ? () -> {} : WriterLock.of(Path.of(folder));
    try {
      LINKS.put(run, new TopicLink(options, topic, inputs, begin, lock));
    } catch (RuntimeException error) {
      lock.close();
      throw error;
    }
  }

  /**
   * Find what the topic has of a query (Spark's id) already, so that it is not written again. since: ms since the
   * epoch; what was written before that cannot come again. KafkaException: Kafka does not answer.
   */
  public static void find(long run, Map<String, Object> options, String query, long since) {
    TopicLink link = of(run);
    TopicTail.read(
        options,
        link.topic,
        since,
        () -> link.over,
        record -> link.written.remember(query, record.headers()));
  }

  /** Return how far a run is: 0, or 1 when the query has begun to read, or 2 when it has written a row. */
  public static int progress(long run) {
    TopicLink link = LINKS.get(run);
    return link == null ? 0 : link.wrote ? 2 : link.reads ? 1 : 0;
  }

  /** Throw what has ended a run, if a row was not taken. */
  public static void check(long run) {
    TopicLink link = LINKS.get(run);
    if (link != null) {
      link.check();
    }
  }

  /**
   * End it, when what is on its way is in the topic; who calls it meanwhile waits for that, too, as the next run may
   * begin then. Does nothing where there is none.
   */
  public static void close(long run) throws IOException {
    TopicLink link = LINKS.get(run);
    if (link != null) {
      link.close();
      LINKS.remove(run);
    }
  }

  private void close() throws IOException {
    over = true;
    onFailure = () -> {}; // tasks that write still fail at it
    synchronized (closing) {
      try (lock) {
        producer.close(PATIENCE);
      }
    }
  }

  /** Return that of a run. GatewayGone: it was closed. */
  static TopicLink of(long run) {
    TopicLink link = LINKS.get(run);
    if (link == null || link.over) {
      throw new GatewayGone("the run " + run + " is over", null);
    }
    return link;
  }

  /** Note that the query begins to read. onFailure: called, in any thread, when a row is not taken. */
  void begin(Runnable onFailure) {
    this.onFailure = onFailure;
    check();
    reads = true;
  }

  /** Write the next row of the record that this thread is at, unless it is there. query: Spark's id. */
  void put(InternalRow row, String query) {
    InputPlace here = InputPlace.here();
    long place = here.next();
    check();
    WrittenPlaces.Partition own = written.of(inputs[here.input], here.partition);
    if (!own.isNew(place)) {
      return;
    }
    try {
      byte[] key = row.isNullAt(0) ? null : row.getUTF8String(0).getBytes();
      // Rows without a key would go anywhere: so they keep the order of their partition.
      Integer to = key == null ? (here.input + here.partition) % producer.partitionsFor(topic).size() : null;
      byte[] value = row.getUTF8String(1).getBytes();
      producer.send(
          new ProducerRecord<>(topic, to, null, key, value, List.of(own.header(query, place))), this::taken);
    } catch (InterruptException stopped) { // the task is; if it is tried again, so is this row
      throw stopped;
    } catch (RuntimeException error) {
      fail(error);
    }
    check();
    own.wrote(place);
  }

  /** Wait until all rows are in the topic. No task puts any meanwhile. */
  void finish() {
    producer.flush();
    check();
  }

  private void taken(RecordMetadata where, Exception error) {
    if (error == null) {
      wrote = true;
    } else {
      fail(error);
    }
  }

  private synchronized void fail(Exception error) {
    if (failure == null) {
      failure = new RuntimeException("a row was not written to the topic " + topic + ": " + error.getMessage(), error);
      onFailure.run();
    }
  }

  private void check() {
    if (failure != null) {
      throw failure;
    }
  }
}
