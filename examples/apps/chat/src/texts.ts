/** What people in the chat read. Change a text and save: those who are connected get the new one. */
export const welcome = (name: string, room: string): string =>
  `Hello ${name}, you are in #${room}. /join <room> changes the room, /name <name> your name, /who lists the others.`;

export const said = (room: string, name: string, text: string): string => `#${room} ${name}: ${text}`;

export const joined = (room: string, name: string): string => `${name} is now in #${room}`;

export const left = (room: string, name: string): string => `${name} left #${room}`;

export const present = (room: string, names: readonly string[]): string => `In #${room}: ${names.join(", ")}`;
