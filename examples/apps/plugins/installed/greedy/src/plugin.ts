import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { defineService } from "@atoll/live/app";

/** What an untrusted plug-in may try, by the word that a text contains. Otherwise it does nothing. */
export const plugin = defineService({
  init: () => ({}),
  call: {
    async apply(_state, text: string): Promise<string> {
      if (text.includes("loop")) for (;;);
      if (text.includes("memory")) for (const kept: Buffer[] = []; ;) kept.push(Buffer.alloc(1024 * 1024, 1));
      if (text.includes("steal")) return readFileSync(text.slice(text.indexOf("/")), "utf8");
      if (text.includes("call home")) return greetingOf(Number(/\d+/.exec(text)?.[0]));
      return text;
    },
  },
});

function greetingOf(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => resolve("connected"));
    socket.on("error", reject);
  });
}
