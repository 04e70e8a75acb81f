import { TarProcess, type ArchiveOptions, type ArchiveSandbox } from "./tar-process.ts";

/**
 * Packs a directory of a sandbox into a tar archive with names relative to that directory. Resolves when the archive
 * has begun, so that a directory that cannot be packed at all rejects here; a later failure ends the iteration with the
 * reason. A reader that leaves early ends the work inside. The bytes come from the sandbox, so that the program that
 * unpacks them must not trust them.
 */
export async function packDirectory(
  sandbox: ArchiveSandbox,
  path: string,
  options: ArchiveOptions = {},
): Promise<AsyncGenerator<Buffer, void, void>> {
  const asked = `pack ${path}`;
  // This follows a link, and refuses one that does not lead to a directory.
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
