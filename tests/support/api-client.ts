import type { CommandInfo, CommandResult, RunCommandInput, SandboxCreated } from "@atoll/protocol";

export interface ApiAnswer<T = never> {
  status: number;
  headers: Headers;
  body: T & { error?: { code: string; message: string; requestId: string; details: Record<string, unknown> } };
}

/** Speaks plain HTTP to a server, as a program without the SDK does. */
export class ApiClient {
  readonly url: string;
  #headers: Record<string, string>;

  constructor(url: string, key: string, headers: Record<string, string> = {}) {
    this.url = url;
    this.#headers = { ...(key === "" ? {} : { authorization: `Bearer ${key}` }), ...headers };
  }

  as(key: string, headers: Record<string, string> = {}): ApiClient {
    return new ApiClient(this.url, key, headers);
  }

  fetch(method: string, path: string, init: RequestInit & { duplex?: "half" } = {}): Promise<Response> {
    const headers = { ...this.#headers, ...(init.headers as Record<string, string> | undefined) };
    return fetch(`${this.url}${path}`, { ...init, method, headers });
  }

  async ask<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<ApiAnswer<T>> {
    const json = body === undefined ? {} : { body: JSON.stringify(body) };
    const type: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
    const response = await this.fetch(method, path, { ...json, headers: { ...type, ...headers } });
    const text = await response.text();
    return { status: response.status, headers: response.headers, body: text === "" ? {} : JSON.parse(text) };
  }

  async create(request: Record<string, unknown> = {}): Promise<SandboxCreated> {
    const { status, body } = await this.ask<SandboxCreated>("POST", "/sandboxes", { driver: "local", ...request });
    if (status !== 201) throw new Error(`The sandbox was not created: ${JSON.stringify(body)}`);
    return body;
  }

  async run(id: string, request: RunCommandInput): Promise<CommandResult> {
    const { status, body } = await this.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, request);
    if (status !== 200) throw new Error(`The command was not started: ${JSON.stringify(body)}`);
    return body;
  }

  async start(id: string, request: RunCommandInput): Promise<CommandInfo> {
    return (await this.run(id, { ...request, background: true })).command;
  }
}

/** Yields the JSON values of an NDJSON response as they arrive. */
export async function* readLines<T>(response: Response): AsyncGenerator<T, void, void> {
  const decoder = new TextDecoder();
  let held = "";
  if (response.body === null) return;
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    held += decoder.decode(chunk, { stream: true });
    const lines = held.split("\n");
    held = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line) as T;
  }
  if (held !== "") throw new Error(`The last line is cut off: ${held}`);
}

export async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const seen: T[] = [];
  for await (const value of values) seen.push(value);
  return seen;
}
