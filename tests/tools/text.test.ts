import { describe, expect, test } from "vitest";
import { findProblems } from "../../tools/text/find-problems.mjs";
import { maxWidth, wrapComments } from "../../tools/text/wrap-comments.mjs";

const words = (count: number) => Array.from({ length: count }, (_, n) => `word${n}`).join(" ");

describe("wrapComments", () => {
  test("splits a wide line comment at its own indentation", () => {
    const wrapped = wrapComments(`  // ${words(30)}\n  const a = 1;\n`);
    const lines = wrapped.trimEnd().split("\n");
    expect(lines.at(-1)).toBe("  const a = 1;");
    expect(lines.slice(0, -1).every((line) => line.startsWith("  // word") && line.length <= maxWidth)).toBe(true);
    expect(lines.length).toBeGreaterThan(2);
  });

  test("makes a wide one-line block comment a block of lines", () => {
    const [first, second, ...rest] = wrapComments(`/** ${words(30)} */\n`)
      .trimEnd()
      .split("\n");
    expect(first).toBe("/**");
    expect(second).toMatch(/^ \* word0 /);
    expect(rest.at(-1)).toBe(" */");
  });

  test("keeps the style of C, in which the first and the last line of a short comment contain text", () => {
    const lines = wrapComments(`/* ${words(30)} */\n`)
      .trimEnd()
      .split("\n");
    expect(lines[0]).toMatch(/^\/\* word0 /);
    expect(lines.at(-1)).toMatch(/ word29 \*\/$/);
    expect(lines.every((line) => line.length <= maxWidth)).toBe(true);
  });

  test("does not change lists, code and paragraphs that fit", () => {
    const source = [
      "/**",
      " * Short.",
      " *",
      " * - one",
      " * - two",
      " *   indented",
      " * @returns it",
      " */",
      "",
    ].join("\n");
    expect(wrapComments(source)).toBe(source);
  });

  test("indents the lines of a list entry that is too wide", () => {
    const lines = wrapComments(`/**\n * - ${words(30)}\n * - second\n */\n`).split("\n");
    expect(lines[1]).toMatch(/^ \* - word0/);
    expect(lines[2]).toMatch(/^ \* {3}word/);
    expect(lines).toContain(" * - second");
  });

  test("changes nothing the second time", () => {
    const once = wrapComments(`/** ${words(60)} */\n// ${words(60)}\n`);
    expect(wrapComments(once)).toBe(once);
  });

  test("does not change code, also on the line on which a comment ends", () => {
    const source = `const a = "${words(30)}";\n/* ${words(30)} */ const b = 1;\n`;
    expect(wrapComments(source)).toBe(source);
  });
});

describe("findProblems", () => {
  const problems = (path: string, source: string) => findProblems(path, source).map(({ problem }) => problem);

  test("refuses a retired word in text, in names of every style and in file names, and names the replacement", () => {
    const retired = ["where", "abouts"].join("");
    expect(problems("a.ts", `// Its ${retired} are known.`)).toEqual([expect.stringContaining("write location")]);
    expect(problems("a.ts", `const ${retired}Of = 1;`)).toHaveLength(1);
    expect(problems("a.c", `int find_${retired}(void);`)).toHaveLength(1);
    expect(problems(`src/${retired}.ts`, "")).toHaveLength(1);
    expect(problems("a.ts", "// The location is known.")).toEqual([]);
  });

  test("accepts the name of the Linux user", () => {
    const user = ["no", "body"].join("");
    expect(problems("a.ts", `const user = "${user}";`)).toEqual([]);
    expect(problems("a.ts", `// ${user} reads this.`)).toHaveLength(1);
  });

  test("refuses wide lines, except for tables of Markdown and long addresses", () => {
    expect(problems("a.ts", `const a = "${words(30)}";`)).toEqual([expect.stringContaining("columns")]);
    expect(problems("a.md", `| ${words(30)} |`)).toEqual([]);
    expect(problems("a.md", `see https://example.com/${"x".repeat(120)}`)).toEqual([]);
  });

  test.for([
    "// Of the way here, once.",
    "/** For eyes. */",
    "/** Whatever the sandbox wrote. */",
    "/** Since the machine was started. */",
    "/** Held until the caller has read it, and then released. */",
    "/** Without quotes. */",
    "/** From the root, without a slash before it. The root itself is empty. */",
    "/**\n * Until the pause\n * is over.\n *\n * @param at\n */",
    "/* In the whole tree. 0 or an errno. */",
    "// Started by a server\n// without deadlines.",
  ])("refuses a comment that begins without its subject: %j", (comment) => {
    expect(problems("a.ts", `${comment}\n`)).toEqual([expect.stringContaining("subject")]);
  });

  test.for([
    "/** The lease of the sandbox. */",
    "/** Returns the time since the machine started. */",
    "/** Called when the guest has answered. */",
    "/** Undefined for an upload. */",
    "/** Aborted when the lease is lost. */",
    "/** Set while the guest does not answer. */",
    "// Before the commit the old code never stopped.",
    "// Whatever the mount reports, the bucket decides.",
    "// In a user namespace the kernel refuses this.",
    "// For a paused sandbox the engine reads the record.",
    "// Until then the request waits.",
    "// Since the lock is held, no other server writes.",
    "// Unlike a rename, a link never replaces a file.",
    "// The process is frozen\n// for as long as the pause takes.",
    'const text = "For eyes.";',
  ])("accepts a complete sentence: %j", (comment) => {
    expect(problems("a.ts", `${comment}\n`)).toEqual([]);
  });
});
