import { TarProcess, type ArchiveOptions, type ArchiveSandbox } from "./tar-process.ts";

/**
 * A directory of a sandbox as a tar archive, names relative to it. Resolves when the archive has begun, so that what
 * cannot be packed at all rejects here; what fails later breaks the iteration off with the reason. A reader that leaves
 * early ends the work inside. The bytes are the sandbox's: whoever unpacks them must not trust them.
 */
export async function packDirectory(
  sandbox: ArchiveSandbox,
  path: string,
  options: ArchiveOptions = {},
): Promise<AsyncGenerator<Buffer, void, void>> {
  const asked = `pack ${path}`;
  // Through a link, and only if it leads to a directory.
  await sandbox.files.stat(`${path}/.`, options);
  const tar = await TarProcess.start(sandbox, ["-C", path, "-cf", "-", "."], { ...options, stdin: false });
  const output = tar.output();
  const first = await output.next();
  if (first.done === true) await tar.finish(asked);
  return (async function* () {
    try {
      if (first.done !== true) yield first.value;
      yield* output;
      await tar.finish(asked);
    } finally {
      await tar.stop();
    }
  })();
}
