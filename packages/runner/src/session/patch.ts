import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describeEnd, succeeded } from "../models/command.ts";
import type { ChangedPath } from "../repository/repository.ts";
import { type StageContext, StageFailure } from "./stage-context.ts";

/** Patches on their way in, as one file with one part after the other. No snapshot contains `/tmp`. */
const bundlePath = "/tmp/atoll-patch";

const timeoutMs = 5 * 60_000;

const exitCodes = { predictionDoesNotFit: 3, testsDoNotFit: 4, noGit: 5 } as const;

/** Whether a patch changes anything: it has a hunk, a binary change, a new name or a new mode. */
export const isEmptyPatch = (patch: string | null): boolean =>
  patch === null ||
  !/^(?:@@ |GIT binary patch|rename to |copy to |new file mode |deleted file mode |new mode )/m.test(patch);

/**
 * `apply` tries the ways to apply a patch, the strictest first. Each is tried on a copy of the index or as a dry run
 * before it may change a file, so that a patch is applied as a whole or not at all.
 *
 * `lay` puts the files that the tests change back to what they were, whatever they are now, and applies the tests. The
 * lists are read as bytes that end with NUL, so that names may be anything.
 */
const script = `
bundle=$1; fuzz=$2; at=1
part() { tail -c "+$at" "$bundle" | head -c "$2" >"$bundle.$1"; at=$((at + $2)); }
part patch "$3"; part present "$4"; part added "$5"; part tests "$6"

apply() {
  patch=$bundle.patch
  if git apply --whitespace=nowarn "$patch" 2>"$patch.err"; then echo "applied with git apply"; return 0; fi
  cat "$patch.err"
  cp "$(git rev-parse --git-path index 2>/dev/null)" "$patch.index" 2>/dev/null
  if GIT_INDEX_FILE=$patch.index git apply --3way --cached --whitespace=nowarn "$patch" >/dev/null 2>&1 &&
    git apply --3way --whitespace=nowarn "$patch" 2>/dev/null; then
    echo "applied with git apply --3way"; return 0
  fi
  set -- --batch --forward --fuzz=5 --strip=1 --no-backup-if-mismatch --input="$patch"
  if [ "$fuzz" = 1 ] && patch "$@" --dry-run >"$patch.dry" 2>&1 && patch "$@" >/dev/null 2>&1; then
    echo "applied with patch --fuzz=5"; return 0
  fi
  if git apply --check --reverse --whitespace=nowarn "$patch" 2>/dev/null; then
    echo "it is applied already"; return 0
  fi
  hunks=$(grep -c '^@@ ' "$patch")
  failed=$(grep -c '^Hunk .*FAILED' "$patch.dry" 2>/dev/null)
  [ "\${failed:-0}" = 0 ] || echo "$failed of $hunks hunks do not fit; a patch is not applied in part"
  return 1
}

lay() {
  if [ -s "$bundle.present" ]; then
    git --literal-pathspecs checkout --quiet --force HEAD --pathspec-from-file="$bundle.present" \\
      --pathspec-file-nul || return 1
  fi
  xargs -0 -r rm -rf -- <"$bundle.added" && git apply --whitespace=nowarn "$bundle.tests"
}

command -v git >/dev/null || exit ${exitCodes.noGit}
[ "$3" = 0 ] || apply || exit ${exitCodes.predictionDoesNotFit}
[ "$6" = 0 ] || lay || exit ${exitCodes.testsDoNotFit}
`;

/** A line of a patch that names what git itself reads, or what lies outside of the tree: only git may apply it. */
const outsideOfTree =
  /^(?:---|\+\+\+|rename (?:from|to)|copy (?:from|to)) "?(?:[ab]\/)?(?:.*\/)?(?:\.git|\.\.)(?:\/|"?$)/im;

export interface Changes {
  /** Applied first, in any way in which it fits. */
  patch?: string;
  /** Written over it, exactly, so that the patch cannot have changed the tests. */
  tests?: { patch: string; changed: readonly ChangedPath[] };
}

/** Makes the changes in the work tree with one command, and returns how the patch was applied. */
export async function makeChanges(
  context: StageContext,
  { patch = "", tests }: Changes,
  blame: StageFailure["blame"],
): Promise<string> {
  const listOf = (test: (status: string) => boolean): string =>
    (tests?.changed ?? [])
      .filter(({ status }) => test(status))
      .map(({ path }) => `${path}\0`)
      .join("");
  const texts = [
    withNewline(patch),
    listOf((status) => status !== "A"),
    listOf((status) => status === "A"),
    withNewline(tests?.patch ?? ""),
  ];
  const parts = texts.map((text) => Buffer.from(text));
  if (parts.every(({ length }) => length === 0)) return "";
  const bundle = join(context.scratch, "patch");
  await writeFile(bundle, Buffer.concat(parts));
  await context.sandbox.copyIn(bundle, bundlePath, context.signal);
  const fuzz = outsideOfTree.test(patch) ? "0" : "1";
  const argv = ["sh", "-c", script, "sh", bundlePath, fuzz, ...parts.map(({ length }) => String(length))];
  const { end, stdout, stderr } = await context.run({ argv, env: { LC_ALL: "C.UTF-8" }, timeoutMs });
  const said = (await context.readOutput(stdout)).trim();
  if (succeeded(end)) return said.split("\n").at(-1) ?? "";
  const why = [said, stderr.tail || stderr.head].join("\n").trim();
  if (end.kind === "exit" && end.code === exitCodes.predictionDoesNotFit) {
    throw new StageFailure(blame, `The patch does not apply: ${why}`);
  }
  if (end.kind === "exit" && end.code === exitCodes.testsDoNotFit) {
    throw new StageFailure(blame, `The tests of the task cannot be laid in: ${why}`);
  }
  if (end.kind === "exit" && end.code === exitCodes.noGit) {
    throw new StageFailure("environment", "There is no git in the sandbox: use a template or an image that has it");
  }
  throw new StageFailure("infrastructure", `Cannot apply a patch (${describeEnd(end)}): ${why}`);
}

const withNewline = (text: string): string => (text === "" || text.endsWith("\n") ? text : `${text}\n`);
