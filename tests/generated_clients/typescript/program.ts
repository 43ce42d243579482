import createClient from "openapi-fetch"
import type { components, paths } from "./api.js"

declare const process: { argv: string[] }

type Problem = components["schemas"]["Problem"]
type Claims = components["schemas"]["Claims"]

const client = createClient<paths, "application/json" | "application/problem+json">({ baseUrl: process.argv[2] ?? "" })
const ofTopic = { params: { path: { topic: "birds" } } }
const ofGroup = { params: { path: { topic: "birds", group: "keepers" } } }

/** The answer, or an exception with the problem's kind. */
function given<T>(answer: { data?: T; error?: Problem }): T {
  if (answer.error !== undefined) throw new Error(`${answer.error.type}: ${answer.error.detail}`)
  if (answer.data === undefined) throw new Error("no answer")
  return answer.data
}

/** Claims messages until there is one of that key. */
async function claimed(key: string): Promise<{ message: Claims["messages"][number]; order: Claims["order"] }> {
  for (;;) {
    const claims = given(await client.POST("/v1/topics/{topic}/groups/{group}/claims", { ...ofGroup, body: { max: 1, wait: 10 } }))
    const message = claims.messages[0]
    if (message?.key === key) return { message, order: claims.order }
  }
}

const topic = given(await client.PUT("/v1/topics/{topic}", { ...ofTopic, body: { segments: 1, retention: { seconds: 3600 } } }))
if (!topic.created || topic.config.retention.seconds !== 3600) throw new Error("the topic is another one")

given(
  await client.POST("/v1/topics/{topic}/messages", {
    ...ofTopic,
    params: { ...ofTopic.params, query: { producer: "typescript", sequence: 1 } },
    body: { messages: [{ key: "heron", value: { at: "dusk" }, headers: { trace: "7f" }, delay_seconds: 0.2 }] },
  }),
)
const heron = (await claimed("heron")).message
const acked = given(
  await client.POST("/v1/topics/{topic}/groups/{group}/acks", {
    ...ofGroup,
    body: { messages: [{ claim: heron.claim, id: heron.id }] },
  }),
)

given(await client.POST("/v1/topics/{topic}/messages", { ...ofTopic, body: { messages: [{ key: "stone", value: "12 kg" }] } }))
const stone = (await claimed("stone")).message
given(
  await client.POST("/v1/topics/{topic}/groups/{group}/releases", {
    ...ofGroup,
    body: { messages: [{ claim: stone.claim }], dead: true, reason: "too heavy" },
  }),
)

const dead: unknown[] = []
while (dead.length === 0) {
  const letters = given(
    await client.GET("/v1/topics/{topic}/groups/{group}/messages", {
      params: { ...ofGroup.params, query: { state: "dead" } },
    }),
  )
  dead.push(...letters.messages.map((letter) => letter.headers["braid-dead-reason"]))
}
const redriven = given(await client.POST("/v1/topics/{topic}/groups/{group}/redrive", { ...ofGroup, body: { max: 10 } }))
const again = (await claimed("stone")).message

const unknown = await client.GET("/v1/topics/{topic}", { params: { path: { topic: "nothing" } } })
if (unknown.error?.type !== "urn:braidmq:topic-not-found") throw new Error("a topic that does not exist was found")

console.log(
  JSON.stringify({ delayed: heron.headers["trace"], acked: acked.accepted, dead, redriven: redriven.redriven, again: again.key }),
)
