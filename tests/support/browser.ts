import { access, constants, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { pollUntil, startHostProcess, type HostProcess } from "@atoll/host";
import { WebSocket } from "ws";

const deadlineMs = 60_000;

/** The browser of this machine, or `undefined`. Debian has it as the package `chromium`. */
export async function findChromium(): Promise<string | undefined> {
  const names = ["chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"];
  const directories = (process.env["PATH"] ?? "").split(delimiter);
  for (const path of directories.flatMap((directory) => names.map((name) => join(directory, name)))) {
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}

interface Message {
  id?: number;
  method?: string;
  params?: { exceptionDetails?: { text: string }; entry?: { text: string } };
  result?: { result?: { value?: unknown; description?: string; subtype?: string }; data?: string };
  error?: { message: string };
}

export interface View {
  width: number;
  height: number;
  scheme?: "light" | "dark";
}

/** One page in a headless Chromium, steered over its debugging protocol. */
export class BrowserPage implements AsyncDisposable {
  readonly #process: HostProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (message: Message) => void>();
  #lastId = 0;
  /** Errors of scripts, and what the browser refused to run or to load. */
  readonly problems: string[] = [];

  private constructor(child: HostProcess, profile: string, socket: WebSocket) {
    this.#process = child;
    this.#profile = profile;
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      const message = JSON.parse(data.toString()) as Message;
      if (message.id !== undefined) this.#waiting.get(message.id)?.(message);
      else if (message.method === "Runtime.exceptionThrown") {
        this.problems.push(message.params?.exceptionDetails?.text ?? "an exception");
      } else if (message.method === "Log.entryAdded") this.problems.push(message.params?.entry?.text ?? "an entry");
    });
  }

  static async open(url: string, { width, height, scheme = "light" }: View): Promise<BrowserPage> {
    const chromium = await findChromium();
    if (chromium === undefined) throw new Error("There is no Chromium on this machine");
    const profile = await mkdtemp(join(tmpdir(), "atoll-browser-"));
    const args = [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--hide-scrollbars",
      "--remote-debugging-port=0",
      `--user-data-dir=${profile}`,
      "about:blank",
    ];
    const child = await startHostProcess(chromium, args, { signal: new AbortController().signal, graceMs: 0 });
    child.discardOutput();
    try {
      const page = new BrowserPage(child, profile, await connect(profile));
      await page.#send("Runtime.enable");
      await page.#send("Log.enable");
      const metrics = { width, height, deviceScaleFactor: 1, mobile: false };
      await page.#send("Emulation.setDeviceMetricsOverride", metrics);
      const features = [{ name: "prefers-color-scheme", value: scheme }];
      await page.#send("Emulation.setEmulatedMedia", { features });
      await page.#send("Page.navigate", { url });
      await page.until(`document.readyState === "complete" && location.href !== "about:blank"`);
      return page;
    } catch (error) {
      await end(child, profile);
      throw error;
    }
  }

  /** The value of an expression in the page, as JSON has it. */
  async evaluate<T>(expression: string): Promise<T> {
    const { result } = await this.#send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    const value = result?.result;
    if (value?.subtype === "error") throw new Error(value.description);
    return value?.value as T;
  }

  /** Waits until an expression is true in the page. */
  async until(expression: string): Promise<void> {
    const isTrue = await pollUntil(async () => (await this.evaluate(expression)) === true, { deadlineMs });
    if (!isTrue) throw new Error(`This did not become true: ${expression}`);
  }

  /** What a person would see, as PNG. */
  async screenshot(): Promise<Buffer> {
    const { result } = await this.#send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(result?.data ?? "", "base64");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    await end(this.#process, this.#profile);
  }

  async #send(method: string, params: object = {}): Promise<Message> {
    const id = ++this.#lastId;
    const { promise, resolve, reject } = withResolvers();
    const refuse = () => reject(new Error(`The browser ended during ${method}`));
    this.#waiting.set(id, resolve);
    this.#socket.once("close", refuse);
    this.#socket.send(JSON.stringify({ id, method, params }));
    try {
      const message = await promise;
      if (message.error !== undefined) throw new Error(`${method}: ${message.error.message}`);
      return message;
    } finally {
      this.#waiting.delete(id);
      this.#socket.off("close", refuse);
    }
  }
}

function withResolvers() {
  let settle: { resolve: (message: Message) => void; reject: (error: Error) => void } | undefined;
  const promise = new Promise<Message>((resolve, reject) => {
    settle = { resolve, reject };
  });
  if (settle === undefined) throw new Error("a promise runs its function at once");
  return { promise, ...settle };
}

/** The browser writes its port to a file of its profile. Its first page is there a little later. */
async function connect(profile: string): Promise<WebSocket> {
  let url: string | undefined;
  const find = async (): Promise<boolean> => {
    const port = await readFile(join(profile, "DevToolsActivePort"), "utf8").catch(() => "");
    if (!/^\d+\n/.test(port)) return false;
    const pages = (await (await fetch(`http://127.0.0.1:${port.split("\n")[0]}/json/list`)).json()) as {
      type: string;
      webSocketDebuggerUrl: string;
    }[];
    url = pages.find(({ type }) => type === "page")?.webSocketDebuggerUrl;
    return url !== undefined;
  };
  if (!(await pollUntil(find, { deadlineMs })) || url === undefined) throw new Error("Chromium did not start");
  const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 256 * 1024 * 1024 });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  return socket;
}

async function end(child: HostProcess, profile: string): Promise<void> {
  await child.kill("SIGKILL");
  await child.wait();
  await rm(profile, { recursive: true, force: true, maxRetries: 5 });
}
