// sharp, as its documentation has it for throughput: as many pictures at once as libuv's pool has threads.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [home, threads, atOnce] = process.argv.slice(2);
const sharp = createRequire(`${home}/`)("sharp");
sharp.concurrency(Number(threads));
// nothing is worked on twice, as with us
sharp.cache(false);

async function make(source, target, format, pixels) {
  const size = { width: pixels, height: pixels, fit: "inside", withoutEnlargement: true };
  await sharp(source, { failOn: "error" }).autoOrient().resize(size).toFormat(format, { quality: 80 }).toFile(target);
}

async function makeAll({ sources, output, format, pixels }) {
  const began = process.hrtime.bigint();
  const left = sources.entries();
  const worker = async () => {
    for (const [number, source] of left) await make(source, `${output}/${number}.${format}`, format, pixels);
  };
  await Promise.all(Array.from({ length: Number(atOnce) }, worker));
  return { wall: Number(process.hrtime.bigint() - began) / 1e9 };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await makeAll(JSON.parse(line)))}\n`);
}
