package kiwigw.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;

/**
 * Notes in the checkpoint, with every epoch, which row of each partition was the last: see `driver/last_rows.py`.
 *
 * <p>A file is there before its epoch is noted as done. Of an epoch that is tried again it is written again, so it holds
 * what was made up to the end of that epoch and nothing else.
 */
final class LastRows {
  private final String[] inputs;
  private final Path folder;
  private final CheckpointFileManager files;

  /** By input and partition: the record and the row behind the last one. */
  private final Map<String, String> behind = new TreeMap<>();

  /** inputs: their names, with commas. known: the text of the last file. */
  LastRows(String inputs, String folder, String known, Configuration conf) {
    this.inputs = inputs.split(",");
    this.folder = new Path(folder);
    this.files = CheckpointFileManager$.MODULE$.create(this.folder, conf);
    for (String line : known.split("\n")) {
      String[] words = line.split(" ");
      if (words.length == 4) {
        behind.put(words[0] + " " + words[1], words[2] + " " + words[3]);
      }
    }
  }

  /** Take note of the last row that a task has made. */
  synchronized void made(int input, int partition, long offset, long row) {
    behind.put(inputs[input] + " " + partition, offset + " " + (row + 1));
  }

  /** Write the file of an epoch, and remove the one that no query will begin with any more. */
  synchronized void keep(long epoch) {
    StringBuilder text = new StringBuilder();
    behind.forEach((partition, place) -> text.append(partition).append(' ').append(place).append('\n'));
    try {
      files.mkdirs(folder);
      FSDataOutputStream out = files.createAtomic(new Path(folder, Long.toString(epoch)), true);
      out.write(text.toString().getBytes(StandardCharsets.UTF_8));
      out.close(); // what is not closed is not there
      files.delete(new Path(folder, Long.toString(epoch - 2)));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
