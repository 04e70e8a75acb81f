import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { succeeded } from "../models/command.ts";
import type { ChangedPath } from "../repository/repository.ts";
import { type StageContext, StageFailure } from "./stage-context.ts";

/** Patches on their way in. In `/tmp`, which no snapshot contains. */
const inbox = "/tmp/atoll-patch";

const timeoutMs = 5 * 60_000;

/** Whether a patch changes anything: it has a hunk, a binary change, a new name or a new mode. */
export const isEmptyPatch = (patch: string | null): boolean =>
  patch === null ||
  !/^(?:@@ |GIT binary patch|rename to |copy to |new file mode |deleted file mode |new mode )/m.test(patch);

/**
 * The ways to apply a patch, the strictest first. Each is tried on a copy of the index or as a dry run before it may
 * change a file, so that a patch is applied as a whole or not at all.
 */
const ladder = `
patch=$1
if git apply --whitespace=nowarn "$patch" 2>"$patch.err"; then echo "applied with git apply"; exit 0; fi
cat "$patch.err"
cp "$(git rev-parse --git-path index)" "$patch.index"
if GIT_INDEX_FILE=$patch.index git apply --3way --cached --whitespace=nowarn "$patch" >/dev/null 2>&1 &&
  git apply --3way --whitespace=nowarn "$patch" 2>/dev/null; then
  echo "applied with git apply --3way"; exit 0
fi
set -- --batch --forward --fuzz=5 --strip=1 --no-backup-if-mismatch --input="$patch"
if [ "$ATOLL_FUZZ" = 1 ] && patch "$@" --dry-run >"$patch.dry" 2>&1 && patch "$@" >/dev/null 2>&1; then
  echo "applied with patch --fuzz=5"; exit 0
fi
if git apply --check --reverse --whitespace=nowarn "$patch" 2>/dev/null; then echo "it is applied already"; exit 0; fi
hunks=$(grep -c '^@@ ' "$patch")
failed=$(grep -c '^Hunk .*FAILED' "$patch.dry" 2>/dev/null)
[ "$failed" = "" ] || [ "$failed" = 0 ] || echo "$failed of $hunks hunks do not fit; a patch is not applied in part"
exit 1
`;

/** Paths that no patch may write: what git itself reads, and what lies outside of the tree. */
const outsideOfTree =
  /^(?:---|\+\+\+|rename (?:from|to)|copy (?:from|to)) "?(?:[ab]\/)?(?:.*\/)?(?:\.git|\.\.)(?:\/|"?$)/im;

/** Applies a patch to the work tree, and returns how. Rejects with `failure` when it does not fit. */
export async function applyPatch(
  context: StageContext,
  patch: string,
  failure: StageFailure["blame"],
): Promise<string> {
  const text = patch.endsWith("\n") ? patch : `${patch}\n`;
  await context.writeFile(`${inbox}/patch.diff`, text);
  const fuzz = outsideOfTree.test(text) ? "0" : "1";
  const result = await context.run({
    argv: ["sh", "-c", ladder, "sh", `${inbox}/patch.diff`],
    env: { ATOLL_FUZZ: fuzz, LC_ALL: "C.UTF-8" },
    timeoutMs,
  });
  const said = (await context.readOutput(result.stdout)).trim();
  if (succeeded(result.end)) return said.split("\n").at(-1) ?? "";
  if (result.end.kind === "exit" && result.end.code === 1)
    throw new StageFailure(failure, `The patch does not apply: ${said}`);
  const { stderr } = result;
  throw new StageFailure("infrastructure", `Cannot apply a patch: ${stderr.tail || stderr.head || said}`);
}

/**
 * Puts the files that the test patch changes back to what they were, whatever they are now, and applies it. The lists
 * are read as bytes that end with NUL, so that names may be anything.
 */
const lay = `
set -e
cd "$1"
if [ -s "$2/present" ]; then
  git --literal-pathspecs checkout --quiet --force HEAD --pathspec-from-file="$2/present" --pathspec-file-nul
fi
xargs -0 -r rm -rf -- <"$2/added"
git apply --whitespace=nowarn "$2/test.diff"
`;

/** Writes the tests of the task after the prediction, so that the prediction cannot have changed them. */
export async function layTests(
  context: StageContext,
  testPatch: string,
  changed: readonly ChangedPath[],
  failure: StageFailure["blame"],
): Promise<void> {
  if (changed.length === 0) return;
  const directory = join(context.scratch, "tests");
  await mkdir(directory, { recursive: true });
  const listOf = (test: (status: string) => boolean): string =>
    changed
      .filter(({ status }) => test(status))
      .map(({ path }) => `${path}\0`)
      .join("");
  await writeFile(
    join(directory, "present"),
    listOf((status) => status !== "A"),
  );
  await writeFile(
    join(directory, "added"),
    listOf((status) => status === "A"),
  );
  await writeFile(join(directory, "test.diff"), testPatch.endsWith("\n") ? testPatch : `${testPatch}\n`);
  await context.sandbox.copyIn(directory, inbox, context.signal);
  const result = await context.run({ argv: ["sh", "-c", lay, "sh", context.workdir, inbox], timeoutMs });
  if (succeeded(result.end)) return;
  const said = (await context.readOutput(result.stderr)).trim();
  if (result.end.kind !== "exit") throw new StageFailure("infrastructure", `Cannot lay in the tests: ${said}`);
  throw new StageFailure(failure, `The tests of the task cannot be laid in: ${said}`);
}
