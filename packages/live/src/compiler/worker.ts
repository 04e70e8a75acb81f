import { encodeFrame, FrameReader } from "../wire/frames.ts";
import { maxJobBytes, type CompileJob } from "./compile-job.ts";
import { compileModule } from "./compile-module.ts";

/**
 * The program of a compiler process: frames with modules come on stdin, and each is answered on stdout in the same
 * order, so that the host knows which module a process was at when it ended.
 */
const reader = new FrameReader(maxJobBytes);

process.stdin.on("data", (chunk: Buffer) => {
  for (const { module, source } of reader.push(chunk) as CompileJob[]) {
    process.stdout.write(encodeFrame(compileModule(module, source), maxJobBytes));
  }
});
// Without its host a compiler has no purpose.
process.stdin.on("end", () => process.exit(0));
