package kiwigw.spark;

import java.time.Duration;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Reads the records of a topic since a time. */
final class TopicTail {
  private static final Duration WAIT = Duration.ofSeconds(1);

  /** Polls in a row that bring nothing, before it is said that Kafka does not answer. */
  private static final int IN_VAIN = 30;

  private TopicTail() {}

  /**
   * Call `each` with every record that is there now and has come since (ms since the epoch); with none where there is no
   * topic. over: whether to stop, which is asked now and then. KafkaException: Kafka does not answer.
   */
  static void read(
      Map<String, Object> options,
      String topic,
      long since,
      BooleanSupplier over,
      Consumer<ConsumerRecord<byte[], byte[]>> each) {
    try (KafkaConsumer<byte[], byte[]> consumer = TopicOffsets.consumer(options)) {
      Map<TopicPartition, TopicOffsets.Range> ranges = TopicOffsets.ranges(consumer, topic, Long.toString(since));
      consumer.assign(ranges.keySet());
      ranges.forEach((partition, range) -> consumer.seek(partition, range.start()));
      int inVain = 0;
      while (!over.getAsBoolean() && !arrived(consumer, ranges)) {
        int found = 0;
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(WAIT)) {
          each.accept(record);
          found++;
        }
        inVain = found > 0 ? 0 : inVain + 1;
        if (inVain == IN_VAIN) {
          throw new TimeoutException("the records of the topic " + topic + " do not come");
        }
      }
    } catch (UnknownTopicOrPartitionException error) {
      return; // nothing was written yet
    }
  }

  private static boolean arrived(
      KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, TopicOffsets.Range> ranges) {
    boolean all = true;
    for (Map.Entry<TopicPartition, TopicOffsets.Range> one : ranges.entrySet()) {
      all &= consumer.position(one.getKey()) >= one.getValue().end();
    }
    return all;
  }
}
