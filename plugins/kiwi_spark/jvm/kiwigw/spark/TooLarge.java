package kiwigw.spark;

/** What a query has made is larger than what may be delivered: trying again makes the same. */
public final class TooLarge extends RuntimeException {
  private static final long serialVersionUID = 1L;

  TooLarge(String message) {
    super(message);
  }

  static TooLarge batch(long most) {
    return new TooLarge(
        String.format(
            "a batch of results has more bytes than `spark.batch_bytes` allows (%,d): nothing of it is sent."
                + " Allow more, and give Spark the memory for it (`spark.driver.memory`); or filter or aggregate"
                + " more. Smaller batches (`max_offsets`, files with `stream: true`, `maxFilesPerTrigger`) need a"
                + " new checkpoint, in another `spark.checkpoint_dir` or by another id: with the old one Spark"
                + " repeats this batch as it was",
            most));
  }

  static TooLarge row(long size) {
    return new TooLarge(
        String.format(
            "a row of %,d bytes is larger than %,d and cannot be delivered", size, Rows.MAX_MESSAGE - Rows.OVERHEAD));
  }
}
