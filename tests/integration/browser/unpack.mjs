// Unpacks the browser that npm has installed beside this file: node unpack.mjs FOLDER
import { chmodSync, createReadStream, createWriteStream, mkdirSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";
import { extract } from "tar-fs";

const folder = process.argv[2], packed = "node_modules/@sparticuz/chromium/bin";
const unpack = (name, to) => pipeline(createReadStream(`${packed}/${name}.br`), createBrotliDecompress(), to);
mkdirSync(folder, { recursive: true });
await unpack("chromium", createWriteStream(`${folder}/chromium`));
chmodSync(`${folder}/chromium`, 0o755);
for (const name of ["al2023.tar", "fonts.tar"]) await unpack(name, extract(folder));
