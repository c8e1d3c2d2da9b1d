package kiwigw.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Asks Kafka where a topic begins and ends. */
public final class TopicOffsets {
  private TopicOffsets() {}

  /**
   * Return `partition start end` of every partition, separated by commas.
   *
   * <p>options: of Kafka's own consumer. start: `earliest`, `latest`, or ms since the epoch: the first record at or
   * after that time, else the end. The end does not move back: everything that is produced after this call comes
   * behind it. KafkaException: it does not answer, or there is no such topic.
   */
  public static String of(Map<String, Object> options, String topic, String start) {
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
      StringJoiner found = new StringJoiner(",");
      ranges(consumer, topic, start)
          .forEach((one, range) -> found.add(one.partition() + " " + range.start() + " " + range.end()));
      return found.toString();
    }
  }

  /** Offsets of a partition: the first, and the one behind the last. */
  record Range(long start, long end) {}

  /** Open a consumer that only looks. */
  static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> options) {
    Map<String, Object> all = new HashMap<>(options);
    all.put("allow.auto.create.topics", false);
    all.put("enable.auto.commit", false);
    return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  /** Return where a topic begins and ends, in every partition: as `of` does. */
  static Map<TopicPartition, Range> ranges(KafkaConsumer<byte[], byte[]> consumer, String topic, String start) {
    List<TopicPartition> partitions = new ArrayList<>();
    for (PartitionInfo partition : partitionsOf(consumer, topic)) {
      partitions.add(new TopicPartition(topic, partition.partition()));
    }
    Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
    Map<TopicPartition, Long> starts = startsOf(consumer, partitions, start, ends);
    Map<TopicPartition, Range> found = new LinkedHashMap<>();
    for (TopicPartition one : partitions) {
      found.put(one, new Range(starts.get(one), ends.get(one)));
    }
    return found;
  }

  private static List<PartitionInfo> partitionsOf(KafkaConsumer<byte[], byte[]> consumer, String topic) {
    List<PartitionInfo> found = consumer.partitionsFor(topic);
    if (found == null || found.isEmpty()) {
      throw new UnknownTopicOrPartitionException("there is no topic " + topic);
    }
    return found;
  }

  private static Map<TopicPartition, Long> startsOf(
      KafkaConsumer<byte[], byte[]> consumer,
      List<TopicPartition> partitions,
      String start,
      Map<TopicPartition, Long> ends) {
    if (start.equals("latest")) {
      return ends;
    }
    if (start.equals("earliest")) {
      return consumer.beginningOffsets(partitions);
    }
    Map<TopicPartition, Long> wanted = new HashMap<>();
    partitions.forEach(one -> wanted.put(one, Long.valueOf(start)));
    Map<TopicPartition, Long> starts = new HashMap<>(ends);
    for (Map.Entry<TopicPartition, OffsetAndTimestamp> one : consumer.offsetsForTimes(wanted).entrySet()) {
      if (one.getValue() != null) {
        starts.put(one.getKey(), one.getValue().offset());
      }
    }
    return starts;
  }
}
