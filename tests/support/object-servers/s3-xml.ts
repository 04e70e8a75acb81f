type XmlValue = string | Record<string, string>[];

const entities: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

const escaped = (text: string) => text.replaceAll(/[&<>"]/g, (character) => entities[character] ?? character);

/** Writes one element with children; a list becomes one child per entry. */
export function xml(root: string, children: Record<string, XmlValue>): string {
  return `<?xml version="1.0" encoding="UTF-8"?><${root}>${inner(children)}</${root}>`;
}

function inner(children: Record<string, XmlValue>): string {
  return Object.entries(children)
    .map(([name, value]) => {
      if (typeof value === "string") return `<${name}>${escaped(value)}</${name}>`;
      return value.map((entry) => `<${name}>${inner(entry)}</${name}>`).join("");
    })
    .join("");
}

/** Returns the parts that a client names when it completes an upload, in the client's order. */
export function readCompletion(body: Buffer): { part: number; etag: string }[] {
  return [...body.toString().matchAll(/<Part>(.*?)<\/Part>/gs)].map(([, text = ""]) => ({
    part: Number(/<PartNumber>(\d+)<\/PartNumber>/.exec(text)?.[1]),
    etag: (/<ETag>(.*?)<\/ETag>/.exec(text)?.[1] ?? "").replaceAll("&quot;", '"'),
  }));
}
