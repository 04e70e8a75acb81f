import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import { run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { CompatFix, EnvFacts, FixPlan } from "../../compat/compat-fix.ts";
import { shimSource } from "../../compat/shim/shim-source.ts";
import { type EnvRecipe, type Instance, toArgv } from "../../models/task.ts";
import { type StageContext, StageFailure } from "../../session/stage-context.ts";
import type { Environment, TestCommand } from "../environment.ts";
import type { KnownRepository } from "../recipes/known-repositories.ts";
import { planTests, withCommand } from "../recipes/plan-test-command.ts";
import { type DebianPackages, distPackages } from "./debian-packages.ts";
import { normalizeName } from "./distribution-names.ts";
import type { IndexPackages } from "./index-packages.ts";
import { installScript } from "./install-script.ts";
import { type Interpreter, minorText, versionText } from "./interpreters.ts";
import { packInterpreter, packVersion } from "./pack-interpreter.ts";
import { prepareScript } from "./prepare-script.ts";

/** Where the environment is inside, outside of the work tree and of root alone. */
const base = "/opt/atoll";
const root = `${base}/env`;
const traceFile = "/var/tmp/atoll-shim-trace";
const wheelDirectory = "/var/tmp/atoll-wheels";
const shimPath = "atoll_compat";

const copyTimeoutMs = 10 * 60_000;
const scriptTimeoutMs = 5 * 60_000;

export interface PythonPlan {
  instance: Instance;
  recipe: EnvRecipe;
  known: KnownRepository | undefined;
  interpreters: readonly Interpreter[];
  interpreter: Interpreter;
  debian: DebianPackages;
  /** What the distribution does not have, from the index that pip of this machine uses. */
  index: IndexPackages;
  /** Module and distribution names of the repository itself: its own files come before any package of that name. */
  own: readonly string[];
  /** The version of the project, where its files do not say it. */
  version: string;
  /** The content of the repository's pyproject.toml. */
  pyproject: Readonly<Record<string, unknown>>;
  cacheDirectory: string;
  signal: AbortSignal;
}

/**
 * A virtual environment with one interpreter and exactly the packages of its recipe. Everything in it belongs to root,
 * so no test can change what the next one runs with.
 */
export class PythonEnvironment implements Environment {
  readonly recipe: EnvRecipe;
  readonly network: readonly string[] = [];
  readonly #plan: PythonPlan;
  readonly #interpreter: Interpreter;
  readonly #debian: DebianPackages;
  readonly #aliases = new Set<string>();

  constructor(plan: PythonPlan) {
    this.#plan = plan;
    this.recipe = plan.recipe;
    this.#interpreter = plan.interpreter;
    this.#debian = plan.debian;
  }

  get inputs(): string {
    const { debian, index, interpreter, own, recipe } = this.#plan;
    const made = [packVersion, unpackScript, prepareScript, installScript, shimSource];
    const scripts = createHash("sha256").update(made.join("\n")).digest("hex");
    return JSON.stringify({
      python: [interpreter.path, versionText(interpreter)],
      packages: debian.packages.map(({ name, version, installed }) => [name, version, installed]),
      archives: debian.archives.map((path) => basename(path)),
      wheels: index.wheels.map((path) => basename(path)),
      missing: index.missing,
      own,
      env: recipe.env,
      scripts,
    });
  }

  env(): Readonly<Record<string, string>> {
    return {
      PATH: `${root}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
      VIRTUAL_ENV: root,
      LANG: "C.UTF-8",
      TZ: "Etc/UTC",
      ATOLL_SHIM_TRACE: traceFile,
      ...this.recipe.env,
    };
  }

  async prepare(context: StageContext): Promise<void> {
    const { missing } = this.#plan.index;
    if (missing.length > 0) context.note(`Neither the distribution nor an index has: ${missing.join(", ")}`);
    await this.#putInterpreter(context);
    await this.#unpackArchives(context);
    await this.#copyWheels(context);
    await this.#link(context);
  }

  async install(context: StageContext): Promise<void> {
    const { instance, pyproject } = this.#plan;
    const config = {
      root,
      site: this.#site(),
      tree: context.workdir,
      pyproject,
      name: instance.repo.split("/").at(-1) || "project",
      version: this.#plan.version,
    };
    const output = await this.#runScript(context, `${root}/bin/python`, installScript, config, "install the project");
    context.note(`Installed ${output.trim()}`);
    for (const line of [...(this.#plan.known?.install ?? []), ...this.recipe.install]) {
      const timeoutMs = instance.task.sandbox.setupTimeoutMs;
      await context.runChecked({ argv: toArgv(line), cwd: context.workdir, timeoutMs }, "install the project");
    }
  }

  async facts(): Promise<EnvFacts> {
    return {
      language: "python",
      version: this.#interpreter.version,
      interpreters: this.#plan.interpreters.map(versionText),
      repo: this.#plan.instance.repo,
      packages: Object.fromEntries(
        this.#debian.packages.map(({ name, version }) => [name.replace(/^python3?-/, ""), upstreamVersion(version)]),
      ),
    };
  }

  /** Its interpreter and its packages are those that were planned, with the fixes that change them. */
  async apply(context: StageContext, _fix: CompatFix, plan: FixPlan): Promise<void> {
    if (plan.shim !== undefined) {
      for (const alias of plan.shim) this.#aliases.add(alias);
    }
    if (this.#aliases.size > 0) await this.#writeShim(context);
    for (const [path, content] of Object.entries(plan.files ?? {})) {
      await context.writeFile(join(context.workdir, path), content);
    }
    for (const argv of plan.rewrites ?? []) {
      await context.runChecked({ argv, cwd: context.workdir, timeoutMs: scriptTimeoutMs }, "rewrite sources");
    }
  }

  async usedAliases(context: StageContext): Promise<string[]> {
    if (this.#aliases.size === 0) return [];
    const script = 'test -f "$1" || exit 0; sort -u "$1"; : > "$1"';
    const argv = ["sh", "-c", script, "sh", traceFile];
    const { stdout } = await context.run({ argv, user: "root", timeoutMs: scriptTimeoutMs });
    const text = await context.readOutput(stdout);
    return text.split("\n").filter((line) => /^[\w.:-]+$/.test(line));
  }

  testCommand(instance: Instance): TestCommand {
    const command = withCommand(planTests(instance, this.#plan.known), instance.task);
    const isSympy = command.parser === "sympy";
    return {
      ...command,
      seeded: (seed) => ({
        argv: isSympy ? [...command.argv, `--seed=${seed}`] : command.argv,
        env: { PYTHONHASHSEED: String(seed) },
      }),
    };
  }

  #site(): string {
    return `${root}/lib/python${minorText(this.#interpreter)}/site-packages`;
  }

  #python(): string {
    const { origin, path } = this.#interpreter;
    return origin === "system" ? path : `${this.#copiedPrefix()}/bin/python${minorText(this.#interpreter)}`;
  }

  #copiedPrefix(): string {
    return `${base}/python/${versionText(this.#interpreter)}`;
  }

  async #putInterpreter(context: StageContext): Promise<void> {
    if (this.#interpreter.origin === "system") {
      const { end } = await context.run({ argv: [this.#python(), "--version"], timeoutMs: scriptTimeoutMs });
      if (end.kind === "exit" && end.code === 0) return;
      throw new StageFailure(
        "environment",
        `There is no ${this.#python()} in the sandbox: use a template or an image that has it, or set ` +
          "environment.interpreter to one that is there",
      );
    }
    const { cacheDirectory, signal } = this.#plan;
    const archive = await packInterpreter(this.#interpreter, cacheDirectory, signal);
    const inside = `/var/tmp/atoll-python.tar`;
    await context.sandbox.copyIn(archive, inside, context.signal);
    const script = `set -e; mkdir -p "$1"; tar -x -f "$2" -C "$1" --no-same-owner; rm -f "$2"
echo "$1/lib" > /etc/ld.so.conf.d/atoll-python.conf; ldconfig`;
    const argv = ["sh", "-c", script, "sh", this.#copiedPrefix(), inside];
    await context.runChecked({ argv, user: "root", timeoutMs: copyTimeoutMs }, "unpack the interpreter");
  }

  async #unpackArchives(context: StageContext): Promise<void> {
    const { archives } = this.#debian;
    if (archives.length === 0) return;
    const inside = "/var/tmp/atoll-archives.tar";
    const host = join(context.scratch, "archives.tar");
    const directory = join(this.#plan.cacheDirectory, "debian");
    const names = archives.map((path) => basename(path));
    await runHost("tar", ["-c", "-f", host, "-C", directory, ...names], context.signal);
    await context.sandbox.copyIn(host, inside, context.signal);
    const entries = this.#debian.packages.flatMap((found) => (found.installed ? [] : found.entries));
    const argv = ["sh", "-c", unpackScript, "sh", inside, ...entries.map((name) => `${distPackages}/${name}`)];
    await context.runChecked({ argv, user: "root", timeoutMs: copyTimeoutMs }, "unpack packages");
  }

  async #copyWheels(context: StageContext): Promise<void> {
    for (const path of this.#plan.index.wheels) {
      await context.sandbox.copyIn(path, `${wheelDirectory}/${basename(path)}`, context.signal);
    }
  }

  async #link(context: StageContext): Promise<void> {
    const missing = await this.#tryLink(context);
    if (missing.length === 0) return;
    await this.#copyInstalled(context, missing);
    const still = await this.#tryLink(context);
    if (still.length > 0) context.note(`Packages without files: ${still.join(", ")}`);
  }

  async #tryLink(context: StageContext): Promise<string[]> {
    const config = {
      root,
      dist: distPackages,
      python: this.#python(),
      version: versionText(this.#interpreter),
      minor: minorText(this.#interpreter),
      wheels: this.#plan.index.wheels.map((path) => `${wheelDirectory}/${basename(path)}`),
      entries: this.#debian.packages.flatMap(({ entries }) => entries).filter((name) => !this.#isOwn(name)),
    };
    const output = await this.#runScript(context, this.#python(), prepareScript, config, "make the environment");
    return z.object({ missing: z.array(z.string()) }).parse(JSON.parse(output)).missing;
  }

  /** The repository's own modules and metadata must not be found in a package of the distribution. */
  #isOwn(entry: string): boolean {
    const name = /^(.+?)(-[^-]*)?\.(dist|egg)-info$/.exec(entry)?.[1] ?? entry.replace(/\.py$/, "");
    return this.#plan.own.includes(normalizeName(name));
  }

  /** Where the sandbox does not have the machine's own packages, they are copied. */
  async #copyInstalled(context: StageContext, entries: readonly string[]): Promise<void> {
    const host = join(context.scratch, "packages.tar");
    const inside = "/var/tmp/atoll-packages.tar";
    await runHost("tar", ["-c", "-f", host, "-C", distPackages, ...entries], context.signal);
    await context.sandbox.copyIn(host, inside, context.signal);
    const script = 'mkdir -p "$1" && tar -x -f "$2" -C "$1" --no-same-owner && rm -f "$2"';
    const argv = ["sh", "-c", script, "sh", distPackages, inside];
    await context.runChecked({ argv, user: "root", timeoutMs: copyTimeoutMs }, "copy packages");
  }

  async #writeShim(context: StageContext): Promise<void> {
    const script = `set -e; cat > "$1/${shimPath}.py"; printf '%s\\n' "import ${shimPath}; ${shimPath}.install('$2')" \
> "$1/${shimPath}.pth"; : > "$3"; chmod 666 "$3"`;
    const argv = ["sh", "-c", script, "sh", this.#site(), [...this.#aliases].toSorted().join(","), traceFile];
    const stdin = Buffer.from(shimSource);
    await context.runChecked({ argv, stdin, user: "root", timeoutMs: scriptTimeoutMs }, "install the shim");
  }

  async #runScript(
    context: StageContext,
    python: string,
    script: string,
    config: object,
    purpose: string,
  ): Promise<string> {
    const argv = [python, "-I", "-", JSON.stringify(config)];
    const stdin = Buffer.from(script);
    const { stdout } = await context.runChecked({ argv, stdin, user: "root", timeoutMs: scriptTimeoutMs }, purpose);
    return context.readOutput(stdout);
  }
}

/** Unpacks Debian archives over the root, as far as programs need them, and compiles the modules in them. */
const unpackScript = `set -e
archives="$1"; shift
directory=$(mktemp -d)
tar -x -f "$archives" -C "$directory"; rm -f "$archives"
for archive in "$directory"/*.deb; do
  dpkg-deb --fsys-tarfile "$archive" | tar -x -C / --no-same-owner --keep-directory-symlink \\
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \\
    --exclude='./usr/lib/python3/dist-packages/*/tests/*'
done
rm -rf "$directory"
for library in blas lapack; do
  find /usr/lib -maxdepth 2 -type d -name "$library" >> /etc/ld.so.conf.d/atoll-packages.conf
done
ldconfig
python3 -m compileall -q -j 2 "$@" > /dev/null || true`;

async function runHost(program: string, args: readonly string[], signal: AbortSignal): Promise<void> {
  const { exitCode, stderr } = await run(program, args, { signal, timeoutMs: copyTimeoutMs });
  if (exitCode !== 0) throw new SandboxError("internal", `Cannot run ${program}: ${stderr.trim()}`);
}

/** `1.5.3` of Debian's `1.5.3+dfsg-2`. */
export const upstreamVersion = (version: string): string =>
  version
    .replace(/^\d+:/, "")
    .replace(/-[^-]*$/, "")
    .replace(/[+~](dfsg|ds|repack|really).*$/, "");
