import { defineService } from "@atoll/live/app";
import { joined, left, present, said, welcome } from "./texts.ts";

interface Member {
  name: string;
  room: string;
}

/** All that the chat knows: who is where. It is kept while the code changes, and while the process starts again. */
interface Rooms {
  members: Map<string, Member>;
  /** How many have come so far, for the names of the next. */
  guests: number;
}

/** A text, and the clients that get it. */
export interface Delivery {
  to: string[];
  text: string;
}

export const rooms = defineService({
  init: (): Rooms => ({ members: new Map(), guests: 0 }),
  call: {
    enter(state, client: string): Delivery[] {
      state.guests += 1;
      const member = { name: `guest-${state.guests}`, room: "lobby" };
      state.members.set(client, member);
      return [{ to: [client], text: welcome(member.name, member.room) }];
    },

    leave(state, client: string): Delivery[] {
      const member = state.members.get(client);
      if (member === undefined) return [];
      state.members.delete(client);
      return [toRoom(state, member.room, left(member.room, member.name))];
    },

    receive(state, { client, text }: { client: string; text: string }): Delivery[] {
      const member = state.members.get(client);
      if (member === undefined) return [];
      const [, command, argument = ""] = /^\/(\w+) *(.*)$/s.exec(text) ?? [];
      switch (command) {
        case undefined:
          return [toRoom(state, member.room, said(member.room, member.name, text))];
        case "name":
          member.name = argument;
          return [toRoom(state, member.room, joined(member.room, member.name))];
        case "join": {
          const before = member.room;
          member.room = argument;
          return [
            toRoom(state, before, left(before, member.name)),
            toRoom(state, member.room, joined(member.room, member.name)),
          ];
        }
        default:
          return [{ to: [client], text: present(member.room, namesIn(state, member.room)) }];
      }
    },

    /** Forgets clients that are no longer connected. */
    keepOnly(state, clients: string[]): void {
      for (const client of state.members.keys()) if (!clients.includes(client)) state.members.delete(client);
    },
  },
});

const toRoom = (state: Rooms, room: string, text: string): Delivery => ({
  to: [...state.members].flatMap(([client, member]) => (member.room === room ? [client] : [])),
  text,
});

const namesIn = (state: Rooms, room: string): string[] =>
  [...state.members.values()].flatMap((member) => (member.room === room ? [member.name] : []));
