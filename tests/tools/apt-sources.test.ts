import { describe, expect, test } from "vitest";
import { deriveSource } from "../../tools/setup/apt-sources.mjs";

const suites = { from: "bookworm", to: "bookworm-backports" };

describe("from deb822 stanzas", () => {
  const derive = (text: string) => deriveSource([{ name: "debian.sources", text }], suites);

  test("mirror, components and key are kept and the suite is replaced", () => {
    const source = derive(`Types: deb deb-src
# a remark
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/key.gpg

Types: deb
URIs: http://mirror.test/security
Suites: bookworm-security
Components: main
`);
    expect(source).toEqual({
      extension: "sources",
      text: `Types: deb
URIs: http://mirror.test/debian
Suites: bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/key.gpg
`,
    });
  });

  test("a key written into the stanza is kept completely", () => {
    const key = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=\n -----END PGP PUBLIC KEY BLOCK-----";
    const source = derive(
      `Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\nSigned-By:${key}\n`,
    );
    expect(source?.text).toContain(`Signed-By:${key}\n`);
  });

  test.for([
    ["a disabled stanza", "Types: deb\nEnabled: no\nURIs: http://m.test\nSuites: bookworm\nComponents: main\n"],
    ["a stanza of sources only", "Types: deb-src\nURIs: http://m.test\nSuites: bookworm\nComponents: main\n"],
    ["another release", "Types: deb\nURIs: http://m.test\nSuites: trixie\nComponents: main\n"],
    ["an empty file", ""],
  ])("nothing is derived from %s", ([, text]) => {
    expect(derive(text ?? "")).toBeUndefined();
  });
});

describe("from one-line entries", () => {
  const derive = (text: string) => deriveSource([{ name: "sources.list", text }], suites);

  test("options stay and the suite is replaced", () => {
    const source = derive(`# deb http://old.test/debian bookworm main
deb-src http://mirror.test/debian bookworm main
deb http://mirror.test/debian bookworm-updates main
deb [arch=amd64 signed-by=/usr/share/keyrings/key.gpg] http://mirror.test/debian bookworm main contrib # ours
`);
    expect(source).toEqual({
      extension: "list",
      text:
        "deb [arch=amd64 signed-by=/usr/share/keyrings/key.gpg] http://mirror.test/debian " +
        "bookworm-backports main contrib\n",
    });
  });

  test("nothing is derived from an entry of another release", () => {
    expect(derive("deb http://mirror.test/ubuntu noble main\n")).toBeUndefined();
  });
});

test("the first file with a matching entry is used, and files of other kinds are not read", () => {
  const source = deriveSource(
    [
      { name: "sources.list.d/old.list.disabled", text: "deb http://disabled.test bookworm main\n" },
      { name: "sources.list.d/other.list", text: "deb http://other.test stable main\n" },
      { name: "sources.list.d/debian.list", text: "deb http://mirror.test bookworm main\n" },
    ],
    suites,
  );
  expect(source?.text).toBe("deb http://mirror.test bookworm-backports main\n");
});
