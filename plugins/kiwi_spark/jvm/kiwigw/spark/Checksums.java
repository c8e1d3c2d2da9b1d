package kiwigw.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The checksums that Hadoop's LocalFs keeps beside files: `.x.crc` beside `x`. */
final class Checksums {
  private Checksums() {}

  /** Return whether a name is one of a checksum. */
  static boolean isOne(String name) {
    return name.startsWith(".") && name.endsWith(".crc");
  }

  /** Delete the checksum of a file, if there is one, on the disk, too: it does not say what the file is going to be. */
  static void forget(Path file) throws IOException {
    Path name = file.getFileName();
    if (name != null && Files.deleteIfExists(file.resolveSibling("." + name + ".crc"))) {
      LocalFolders.sync(file.getParent());
    }
  }
}
