------------------------------- MODULE PdState -------------------------------
(***************************************************************************)
(* What there is in PdLedger: its constants, its variables and the words   *)
(* that decode and prefill share.                                          *)
(***************************************************************************)
EXTENDS PageLedger

CONSTANTS
  DecodePages, PrefillPages, \* how many pages each pool has
  Requests,                  \* names of requests
  AttemptsMax,               \* how often a request may be submitted
  Ranks,                     \* ranks of prefill: layer l is written by rank l % Ranks, and each tells of its writes
  ChunkPages,                \* pages of a chunk
  Needs,                     \* how many pages each request needs,
  Granted,                   \* how many of them prefill fills (the others are for the answer),
  Keys,                      \* and the content keys of the first of them; <<>> for no prefix cache
  TooLong,                   \* requests whose prompt prefill does not accept: it transfers a placeholder
  Room,                      \* the transfer id that each request's client gives it, or Nobody
  Slots,                     \* metadata slots of decode; 0 where there are none
  May,                       \* what the environment may do, of MayBe
  Has                        \* parts that a lab need not have, of Parts

Guards == {
  "drain-before-free", "quarantine-on-expiry", "control-carries-generation", "publish-after-commit",
  "stop-posting-on-abort", "ack-when-drained", "tell-peer-of-end", "commit-when-whole", "receive-watchdog",
  "lengths-agree", "check-incarnation", "register-before-send", "every-handle-stopped", "bytes-before-commit",
  "local-work-before-grant", "compute-before-post", "reference-names-generation", "renew-lease",
  "slot-carries-owner", "unique-transfer-id", "remember-ended", "end-frees-pages",
  "commit-together", "retraction-renews-attempt", "retry-takes-other-pages"}
MayBe == {
  "time-out",                \* a client's patience ends
  "receive-time-out",        \* the watchdogs' time ends within the bound that is looked at
  "abort", "lose", "copy",   \* a client aborts; a message is lost, or arrives twice
  "overtake",                \* an abort comes before the reserve that it follows
  "fail", "ghost",           \* the completion of a write is an error; and it lands all the same
  "lease",                   \* of pulled source pages: its time ends within the bound that is looked at
  "old-reference",           \* a client presents the reference that was made for another request
  "bootstrap-time-out",      \* prefill waits too long for decode's pages
  "answer-early",            \* the completion of a write comes before its bytes are there
  "retract",                 \* decode's scheduler takes the pages of a request back for others
  "retry",                   \* a router has another prefill serve a request; one pool of prefill's stands for both
  "restart"}                 \* prefill dies, and another takes its place
Parts == {
  "pull",                    \* decode reads the pages itself: the client has a reference to them from prefill
  "router",                  \* a request is taken to both: prefill waits for decode's pages, or they for it
  "post-at-once",            \* an abort finds every chunk posted for which there are source pages
  "late-forward",            \* a chunk's forward is queued, and runs when it runs
  "late-fill",               \* pages are filled with zeros before use; that is queued
  "scales",                  \* what the last rank writes is no KV: a stream of scales, without which KV means nothing
  "batch",                   \* decode answers one request at a time: whose KV is complete waits for its turn
  "late-register"}           \* decode's entry for a transfer is made by queued work
ASSUME Without \subseteq Guards /\ May \subseteq MayBe /\ Has \subseteq Parts

VARIABLES
  decode, prefill,  \* the pools: pages, free (a stack, its top first), grants, content (whose bytes), epoch,
                    \* rooms (who goes by an id: <<id, request, attempt>>), slots (whose word), spare (free ones)
  attempts,         \* each request: its attempts as decode knows them
  jobs,             \* each request: the same attempts as prefill knows them
  cache,            \* the prefix cache: which page is found under which key
  queue, waiting,   \* attempts that wait for pages, on decode and on prefill
  wire,             \* writes that are posted and have not landed
  net,              \* messages that are sent and have not arrived
  strays,           \* history: what took effect after that which it was for had ended
  act               \* the step just taken

state == <<decode, prefill, attempts, jobs, cache, queue, waiting, wire, net, strays>>
vars == <<state, act>>

(* For configurations, which can only name a function. *)
OneEach == [r \in Requests |-> 1]
TwoEach == [r \in Requests |-> 2]
NoKeys == [r \in Requests |-> <<>>]
SameKey == [r \in Requests |-> <<"k">>]
OwnKey == [r \in Requests |-> <<r>>]
OwnRoom == [r \in Requests |-> Nobody]
SameRoom == [r \in Requests |-> "t"]

Pulls == "pull" \in Has
Routed == "router" \in Has

NoChunk == -1
RankSet == 0..(Ranks - 1)
KvRanks == IF "scales" \in Has THEN 0..(Ranks - 2) ELSE RankSet
OfKv(news) == {part \in news : part[2] \in KvRanks}     \* chunks and ranks; what is left is of scales
SlotLayer == Layers  \* of the write of metadata, which is rank 0's part of the last chunk
NoSlot == -1
RankOf(layer) == IF layer = SlotLayer THEN 0 ELSE layer % Ranks
IsSlot(w) == w.layer = SlotLayer
Nic == {0}          \* the one handle of a source page

Message(type, r, a, chunk, rank, ok, pages) ==
  [type |-> type, request |-> r, attempt |-> a, chunk |-> chunk, rank |-> rank, ok |-> ok, pages |-> pages]
Word(type, r, a) == Message(type, r, a, NoChunk, 0, TRUE, <<>>)

NewAttempt == [tickets |-> <<>>, hits |-> 0, reserved |-> FALSE, missing |-> {}, failed |-> {}, due |-> 0,
               registered |-> TRUE, filled |-> TRUE, peer |-> 0,
               committed |-> FALSE, running |-> FALSE, ended |-> Nobody, slot |-> NoSlot,
               stage |-> "here", ref |-> <<>>, reading |-> {}, got |-> {}, broken |-> FALSE,
               again |-> FALSE]
NewJob == [stage |-> "none", first |-> 0, pages |-> <<>>, sources |-> <<>>, computed |-> 0, posted |-> 0,
           outstanding |-> {}, done |-> {}, failed |-> {}, aborted |-> FALSE, owes |-> FALSE, released |-> FALSE,
           offered |-> FALSE, closed |-> FALSE, readers |-> {}]

(* What a configuration is of, for whoever reads a counterexample. *)
Setting == [name |-> "Init", request |-> Nobody, attempt |-> 0, part |-> 0, rank |-> 0, page |-> 0, taken |-> {},
            found |-> 0, without |-> Without, may |-> May, has |-> Has, tooLong |-> TooLong,
            ranks |-> Cardinality(KvRanks),
            slots |-> Slots, room |-> Room, pinned |-> IF Pulls THEN PrefillPages ELSE 0]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a < b THEN b ELSE a

NewDecode == [NewPool(DecodePages) EXCEPT !.slots = [s \in 0..(Slots - 1) |-> Nobody],
                                          !.spare = [i \in 1..Slots |-> i - 1]]

Init ==
  /\ decode = NewDecode
  /\ prefill = NewPool(PrefillPages)
  /\ attempts = [r \in Requests |-> <<>>]
  /\ jobs = [r \in Requests |-> <<>>]
  /\ cache = {}
  /\ queue = <<>> /\ waiting = <<>>
  /\ wire = {} /\ net = {} /\ strays = {}
  /\ act = Setting

(* `part` counts the chunks that are written, from 0, and `rank` says who  *)
(* writes; `taken` and `found` are what an admission takes from the        *)
(* allocator and had from the cache.                                       *)
Act(name, r, a, part, rank, page, taken, found) ==
  act' = [name |-> name, request |-> r, attempt |-> a, part |-> part, rank |-> rank, page |-> page,
          taken |-> taken, found |-> found]
DidTake(name, r, a, taken, found) == Act(name, r, a, 0, 0, 0, taken, found)
DidPart(name, r, a, part, rank, page) == Act(name, r, a, part, rank, page, {}, 0)
Did(name, r, a, part, page) == DidPart(name, r, a, part, 0, page)
FirstIndex(r, a) == IF Pulls THEN attempts[r][a].hits ELSE jobs[r][a].first
Part(r, a, chunk) == IF chunk = NoChunk THEN 0 ELSE Max(0, chunk - (FirstIndex(r, a) \div ChunkPages))

Less(seq, entry) == SelectSeq(seq, LAMBDA e : e # entry)
ChunkCount(r) == (Granted[r] + ChunkPages - 1) \div ChunkPages
ChunkOf(index) == index \div ChunkPages
OfChunk(r, chunk, first) ==     \* the indices of a chunk's pages, from `first` on
  Max(chunk * ChunkPages, first)..(Min((chunk + 1) * ChunkPages, Granted[r]) - 1)
Own(r, a, index) == [request |-> r, attempt |-> a, index |-> index]     \* a prompt's bytes, by the page
=============================================================================
