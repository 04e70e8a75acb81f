/** What an `eval_script` of the data set does, beside preparing the work tree, which the session does itself. */
export interface EvalScript {
  /** Variables that it exports. */
  env: Readonly<Record<string, string>>;
  /** Commands that it runs before the tests, such as a build. */
  build: readonly string[];
  /** The commands between the marks of the test output. */
  test: readonly string[];
}

const startMark = ">>>>> Start Test Output";
const endMark = ">>>>> End Test Output";

/** Everything else before the tests is set-up of the official image: its conda, its checkout, its installation. */
const buildCommand = /^(npm run|npx|yarn( run)? (?!install)|pnpm( run)? (?!install|i\b)|make|node|bash|sh|\.\/)\b/;

/** Reads an `eval_script`. `undefined` for one without the marks around the tests. */
export function readEvalScript(text: string): EvalScript | undefined {
  const env: Record<string, string> = {};
  const build: string[] = [];
  const test: string[] = [];
  let place: "before" | "tests" | "after" = "before";
  let document: string | undefined;
  for (const line of text.split("\n")) {
    if (document !== undefined) {
      if (line.trim() === document) document = undefined;
      continue;
    }
    if (line.includes(startMark)) place = "tests";
    else if (line.includes(endMark)) place = "after";
    else if (place === "tests") test.push(line);
    else if (place === "before") {
      document = /<<\s*['"]?(\w+)['"]?\s*$/.exec(line)?.[1];
      const [, name, value] = /^export ([A-Za-z_]\w*)=(.*)$/.exec(line.trim()) ?? [];
      if (name !== undefined && value !== undefined) env[name] = unquote(value);
      else if (document === undefined && buildCommand.test(line.trim())) build.push(line.trim());
    }
  }
  const commands = test.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  return commands.length === 0 ? undefined : { env, build, test: commands };
}

const unquote = (value: string): string => value.replace(/^(['"])(.*)\1$/, "$2");
