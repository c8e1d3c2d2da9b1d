package kiwigw.spark;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * Which rows of a query a topic has, by their places; a record says its own in the header `kiwi-place`:
 * `{id of Spark's query}:{input}:{partition}:{offset}:{row}`.
 *
 * <p>Theory of operation. A run begins at the last checkpoint, and the one before it may have written rows since. That
 * one of them is in the topic tells nothing of others: rows with different keys are in different partitions, and any
 * of the last ones may be missing. So their places are remembered one by one, in 8 bytes each, and rows that have them
 * are not written again. Within a run the rows of a partition come in the order of their places: what is not above the
 * last one comes from a task that is tried again.
 */
final class WrittenPlaces {
  private static final String HEADER = "kiwi-place";

  private final Map<String, Long> begin = new HashMap<>();
  private final Map<String, Partition> partitions = new ConcurrentHashMap<>();

  /** begin: the first records that the run may read, by partition: `flights:0 345,flights:1 678`. */
  WrittenPlaces(String begin) {
    for (String one : begin.split(",")) {
      String[] parts = one.split(" ");
      this.begin.put(parts[0], Long.valueOf(parts[1]));
    }
  }

  /** Return a partition of an input. */
  Partition of(String input, int partition) {
    return of(input + ":" + partition);
  }

  private Partition of(String name) {
    return partitions.computeIfAbsent(name, Partition::new);
  }

  /** Remember a record of the topic, if it is a row of this query (Spark's id) that may come again. */
  void remember(String query, Iterable<Header> headers) {
    for (Header header : headers) {
      if (header.key().equals(HEADER) && header.value() != null) {
        String[] said = new String(header.value(), StandardCharsets.UTF_8).split(":");
        if (said.length == 5 && said[0].equals(query)) {
          remember(said[1] + ":" + said[2], Long.parseLong(said[3]), Long.parseLong(said[4]));
        }
      }
    }
  }

  private void remember(String partition, long offset, long row) {
    if (offset >= begin.getOrDefault(partition, 0L)) {
      of(partition).remember(InputPlace.number(offset, row));
    }
  }

  /** The rows of one partition of an input. */
  static final class Partition {
    private final String name;
    private long[] places = new long[16];
    private int count;
    private boolean sorted;
    private long last = -1;

    private Partition(String name) {
      this.name = name;
    }

    private void remember(long place) {
      if (count == places.length) {
        places = Arrays.copyOf(places, 2 * count);
      }
      places[count++] = place;
    }

    /** Note that this run has written a row. */
    synchronized void wrote(long place) {
      last = place;
    }

    /** Return whether a row is to be written. */
    synchronized boolean isNew(long place) {
      if (place <= last) {
        return false;
      }
      if (!sorted) {
        Arrays.sort(places, 0, count);
        sorted = true;
      }
      if (count > 0 && place > places[count - 1]) { // what comes now was not written before
        count = 0;
        places = new long[0];
      }
      return Arrays.binarySearch(places, 0, count, place) < 0;
    }

    /** Return the header of a row. query: Spark's id. */
    Header header(String query, long place) {
      String said = query + ":" + name + ":" + InputPlace.offset(place) + ":" + InputPlace.row(place);
      return new RecordHeader(HEADER, said.getBytes(StandardCharsets.UTF_8));
    }
  }
}
