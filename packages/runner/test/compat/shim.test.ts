import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { afterAll, beforeAll, expect, test } from "vitest";
import { catalogue } from "../../src/compat/catalogue.ts";
import { shimSource } from "../../src/compat/shim/shim-source.ts";

let directory = "";

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-shim-"));
  await writeFile(join(directory, "atoll_compat.py"), shimSource);
});

afterAll(() => rm(directory, { recursive: true, force: true }));

/** Runs a program with the aliases in force, and returns what it prints and what the trace has. */
async function withShim(aliases: string, program: string) {
  const trace = join(directory, randomUUID());
  const source = `import atoll_compat; atoll_compat.install(${JSON.stringify(aliases)})\n${program}`;
  const { stdout, stderr } = await run("python3", ["-c", source], {
    signal: new AbortController().signal,
    timeoutMs: 60_000,
    env: { PYTHONPATH: directory, ATOLL_SHIM_TRACE: trace },
  });
  const used = await readFile(trace, "utf8").catch(() => "");
  return { output: stderr === "" ? stdout.trim() : stderr, used: used.trim().split("\n") };
}

const programs: readonly [alias: string, program: string, output: string, used: string][] = [
  [
    "collections-abc",
    "from collections import Mapping, OrderedDict; print(isinstance({}, Mapping))",
    "True",
    "collections.Mapping",
  ],
  [
    "inspect-getargspec",
    "import inspect\ndef f(a, b=1, *c, **d): pass\nprint(tuple(inspect.getargspec(f)))",
    "(['a', 'b'], 'c', 'd', (1,))",
    "inspect.getargspec",
  ],
  [
    "asyncio-coroutine",
    "import asyncio\n@asyncio.coroutine\ndef f():\n    yield from asyncio.sleep(0)\n    return 3\n" +
      "print(asyncio.run(f()))",
    "3",
    "asyncio.coroutine",
  ],
  ["fractions-gcd", "from fractions import gcd; print(gcd(12, 18))", "6", "fractions.gcd"],
  ["base64-strings", "import base64; print(base64.encodestring(b'a'))", String.raw`b'YQ==\n'`, "base64.encodestring"],
  ["time-clock", "import time; print(time.clock() > 0)", "True", "time.clock"],
  ["platform-dist", "import platform; print(len(platform.linux_distribution()))", "3", "platform.linux_distribution"],
  [
    "html-unescape",
    "from html.parser import HTMLParser; print(HTMLParser().unescape('&lt;'))",
    "<",
    "HTMLParser.unescape",
  ],
  ["thread-isalive", "import threading; print(threading.current_thread().isAlive())", "True", "Thread.isAlive"],
  ["random-sample", "import random; print(len(random.sample({1, 2, 3}, 2)))", "2", "Random.sample"],
  ["open-u", "print(open('/dev/null', 'rU').read() == '')", "True", "open"],
  ["os-errno", "import os; print(os.errno.ENOENT)", "2", "os.errno"],
  [
    "unittest-ids",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\nprint(T('test_a'))",
    "test_a (__main__.T)",
    "TestCase.__str__",
  ],
  [
    "unittest-docs",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        '''\n        Text\n        '''\n" +
      "print(T('test_a').shortDescription())",
    "None",
    "TestCase.shortDescription",
  ],
];

test.for(programs)("the shim gives %s back and says that it was used", async ([alias, program, output, name]) => {
  expect(await withShim(alias, program)).toEqual({ output, used: [`${alias}:${name}`] });
});

test("a connection that no network takes fails when its timeout is over", async () => {
  // An address that the kernel refuses at once, as it refuses all of them where there is no network.
  await writeFile(
    join(directory, "socket.py"),
    "import errno\ntimeout = TimeoutError\nclass socket:\n  def gettimeout(self): return 0.01\n" +
      "  def connect(self, address): raise OSError(errno.ENETUNREACH, 'Network is unreachable')\n",
  );
  const program = "import socket\ntry: socket.socket().connect(1)\nexcept TimeoutError as error: print(error)";
  expect(await withShim("connect-timeouts", program)).toEqual({
    output: "timed out",
    used: ["connect-timeouts:socket.connect"],
  });
});

test("Werkzeug's client takes as_tuple and returns what old versions returned", async () => {
  await mkdir(join(directory, "werkzeug"));
  await writeFile(join(directory, "werkzeug", "__init__.py"), "");
  await writeFile(
    join(directory, "werkzeug", "test.py"),
    "class Response:\n  class request: environ = 'environ'\n  def __repr__(self): return 'response'\n" +
      "class Client:\n  def open(self, path): return Response()\n",
  );
  const program =
    "from werkzeug.test import Client\nclass Ours(Client):\n  def open(self, path, as_tuple=False):\n" +
    "    return super().open(path, as_tuple=as_tuple)\nprint(Ours().open('/'), Ours().open('/', as_tuple=True))";
  expect(await withShim("werkzeug-as-tuple", program)).toEqual({
    output: "response ('environ', response)",
    used: ["werkzeug-as-tuple:Client.open"],
  });
});

test("a module that is imported later is patched when it is", async () => {
  const module = "def old_name(): pass\n";
  await writeFile(join(directory, "markupsafe.py"), "soft_str = str\n");
  await writeFile(join(directory, "plain_module.py"), module);
  const { output, used } = await withShim(
    "markupsafe-soft",
    "from markupsafe import soft_unicode; print(soft_unicode)",
  );
  expect({ output, used }).toEqual({ output: "<class 'str'>", used: ["markupsafe-soft:markupsafe.soft_unicode"] });
});

test("a name that the module never had is still missing", async () => {
  const program = "import collections\ntry: collections.Nothing\nexcept AttributeError as error: print(error)";
  const { output, used } = await withShim("collections-abc", program);
  expect(output).toContain("'collections' has no attribute 'Nothing'");
  expect(used).toEqual([""]);
});

test("a hook that finds a module keeps what its loader offers", async () => {
  const program =
    "import importlib.util, inspect, fractions\nprint('class Fraction' in inspect.getsource(fractions))\n" +
    "print(importlib.util.find_spec('fractions').origin.endswith('fractions.py'))";
  expect((await withShim("fractions-gcd", program)).output).toBe("True\nTrue");
});

test("every alias that a fix installs is one that the shim has", async () => {
  const facts = { language: "python", version: [3, 11], interpreters: [], repo: "", packages: {} } as const;
  const symptoms = { text: "", missing: [], seen: [], failing: [] };
  const aliases = catalogue.flatMap((fix) => fix.plan(symptoms, facts).shim ?? []);
  const known = "(atoll_compat.PATCHES, atoll_compat.MODULES)";
  const program = `print([n for n in ${JSON.stringify(aliases)} if not any(n in table for table in ${known})])`;
  expect((await withShim("", program)).output).toBe("[]");
});
