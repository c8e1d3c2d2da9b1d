package kiwigw.spark;

import java.util.ArrayList;
import java.util.HashMap;
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
    Map<String, Object> all = new HashMap<>(options);
    all.put("allow.auto.create.topics", false);
    all.put("enable.auto.commit", false);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      List<TopicPartition> partitions = new ArrayList<>();
      for (PartitionInfo partition : partitionsOf(consumer, topic)) {
        partitions.add(new TopicPartition(topic, partition.partition()));
      }
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      Map<TopicPartition, Long> starts = startsOf(consumer, partitions, start, ends);
      StringJoiner found = new StringJoiner(",");
      for (TopicPartition one : partitions) {
        found.add(one.partition() + " " + starts.get(one) + " " + ends.get(one));
      }
      return found.toString();
    }
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
