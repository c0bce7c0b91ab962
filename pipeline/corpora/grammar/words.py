"""The word lists of the grammar, read by `lexicon`: one lemma per line, the most frequent of its kind first.

Forms that are left out follow rules (`inflection`). Kinds: P person, A animal, T thing, D device, R something to read,
C clothing, F food, M food without plural, K drink, S furniture, L place, B part of a building, V vehicle, N nature.
"""

NOUNS = """
# kind | english: singular [plural] | german: singular gender plural [weak] | french: singular gender [plural]
P | man men | Mann m Männer | homme m
P | woman women | Frau f Frauen | femme f
P | child children | Kind n Kinder | enfant m
P | girl | Mädchen n Mädchen | fille f
P | teacher | Lehrer m Lehrer | professeur m
P | boy | Junge m Jungen weak | garçon m
P | friend | Freund m Freunde | ami m
P | mother | Mutter f Mütter | mère f
P | father | Vater m Väter | père m
P | sister | Schwester f Schwestern | sœur f
P | brother | Bruder m Brüder | frère m
P | doctor | Arzt m Ärzte | médecin m
P | neighbour | Nachbar m Nachbarn weak | voisin m
P | student | Student m Studenten weak | étudiant m
P | queen | Königin f Königinnen | reine f
P | king | König m Könige | roi m
P | farmer | Bauer m Bauern weak | paysan m
P | grandmother | Großmutter f Großmütter | grand-mère f grands-mères
P | daughter | Tochter f Töchter | fille f
P | uncle | Onkel m Onkel | oncle m
P | aunt | Tante f Tanten | tante f
P | son | Sohn m Söhne | fils m fils
P | baker | Bäcker m Bäcker | boulanger m
P | painter | Maler m Maler | peintre m
P | soldier | Soldat m Soldaten weak | soldat m
P | nurse | Krankenschwester f Krankenschwestern | infirmière f
P | grandfather | Großvater m Großväter | grand-père m grands-pères
P | tourist | Tourist m Touristen weak | touriste m
P | guest | Gast m Gäste | invité m
P | gardener | Gärtner m Gärtner | jardinier m
P | princess | Prinzessin f Prinzessinnen | princesse f
P | judge | Richter m Richter | juge m
A | dog | Hund m Hunde | chien m
A | cat | Katze f Katzen | chat m
A | horse | Pferd n Pferde | cheval m chevaux
A | bird | Vogel m Vögel | oiseau m
A | cow | Kuh f Kühe | vache f
A | mouse mice | Maus f Mäuse | souris f souris
A | bear | Bär m Bären weak | ours m ours
A | pig | Schwein n Schweine | cochon m
A | duck | Ente f Enten | canard m
A | lion | Löwe m Löwen weak | lion m
A | rabbit | Kaninchen n Kaninchen | lapin m
A | goat | Ziege f Ziegen | chèvre f
T | key | Schlüssel m Schlüssel | clé f
T | bag | Tasche f Taschen | sac m
T | picture | Bild n Bilder | image f
T | flower | Blume f Blumen | fleur f
T | clock | Uhr f Uhren | horloge f
T | bottle | Flasche f Flaschen | bouteille f
T | gift | Geschenk n Geschenke | cadeau m
T | knife knives | Messer n Messer | couteau m
T | glass | Glas n Gläser | verre m
T | umbrella | Regenschirm m Regenschirme | parapluie m
T | box | Kiste f Kisten | boîte f
T | suitcase | Koffer m Koffer | valise f
T | ring | Ring m Ringe | bague f
T | spoon | Löffel m Löffel | cuillère f
T | guitar | Gitarre f Gitarren | guitare f
T | basket | Korb m Körbe | panier m
D | lamp | Lampe f Lampen | lampe f
D | computer | Computer m Computer | ordinateur m
D | radio | Radio n Radios | radio f
D | television | Fernseher m Fernseher | télévision f
D | machine | Maschine f Maschinen | machine f
R | book | Buch n Bücher | livre m
R | letter | Brief m Briefe | lettre f
R | newspaper | Zeitung f Zeitungen | journal m journaux
R | story | Geschichte f Geschichten | histoire f
R | poem | Gedicht n Gedichte | poème m
R | message | Nachricht f Nachrichten | message m
C | coat | Mantel m Mäntel | manteau m
C | hat | Hut m Hüte | chapeau m
C | dress | Kleid n Kleider | robe f
C | jacket | Jacke f Jacken | veste f
C | shirt | Hemd n Hemden | chemise f
C | shoe | Schuh m Schuhe | chaussure f
C | skirt | Rock m Röcke | jupe f
F | apple | Apfel m Äpfel | pomme f
F | cake | Kuchen m Kuchen | gâteau m
F | egg | Ei n Eier | œuf m
F | orange | Orange f Orangen | orange f
F | sausage | Wurst f Würste | saucisse f
F | pear | Birne f Birnen | poire f
M | bread | Brot n - | pain m
M | soup | Suppe f - | soupe f
M | cheese | Käse m - | fromage m
K | water | Wasser n - | eau f
K | milk | Milch f - | lait m
K | coffee | Kaffee m - | café m
K | tea | Tee m - | thé m
S | table | Tisch m Tische | table f
S | chair | Stuhl m Stühle | chaise f
S | bed | Bett n Betten | lit m
S | bench | Bank f Bänke | banc m
S | cupboard | Schrank m Schränke | armoire f
L | house | Haus n Häuser | maison f
L | garden | Garten m Gärten | jardin m
L | school | Schule f Schulen | école f
L | city | Stadt f Städte | ville f
L | kitchen | Küche f Küchen | cuisine f
L | village | Dorf n Dörfer | village m
L | park | Park m Parks | parc m
L | church | Kirche f Kirchen | église f
L | hotel | Hotel n Hotels | hôtel m
L | forest | Wald m Wälder | forêt f
L | castle | Schloss n Schlösser | château m
L | room | Zimmer n Zimmer | chambre f
L | office | Büro n Büros | bureau m
L | museum | Museum n Museen | musée m
L | shop | Laden m Läden | magasin m
L | hospital | Krankenhaus n Krankenhäuser | hôpital m hôpitaux
L | library | Bibliothek f Bibliotheken | bibliothèque f
L | restaurant | Restaurant n Restaurants | restaurant m
B | door | Tür f Türen | porte f
B | window | Fenster n Fenster | fenêtre f
B | gate | Tor n Tore | portail m
B | wall | Mauer f Mauern | mur m
B | roof | Dach n Dächer | toit m
V | car | Auto n Autos | voiture f
V | bicycle | Fahrrad n Fahrräder | vélo m
V | boat | Boot n Boote | bateau m
N | tree | Baum m Bäume | arbre m
N | river | Fluss m Flüsse | rivière f
N | mountain | Berg m Berge | montagne f
N | bridge | Brücke f Brücken | pont m
N | stone | Stein m Steine | pierre f
"""

NAMES = """
# name sex
Anna f
Paul m
Emma f
Peter m
Julia f
Martin m
Clara f
David m
Laura f
Simon m
"""

COMPOUNDS = """
# first part: english | its German form in a compound | second parts
kitchen | Küchen | window table door chair
garden | Garten | door wall gate bench
house | Haus | door key wall roof
car | Auto | key door window
school | Schul | book bag roof gate
church | Kirchen | door window roof
city | Stadt | park wall gate library
hotel | Hotel | room key restaurant garden
office | Büro | chair door computer
castle | Schloss | garden park gate
"""

ADJECTIVES = """
# kinds | english | german [declined stem] | french: masculine [feminine [before a vowel]] [<: stands before the noun]
PATCSLVNB | old | alt | vieux vieille vieil <
PATFCRSLVNBD | small | klein | petit <
PATSLVNBD | big | groß | grand <
PA | young | jung | jeune <
TCRSLVBD | new | neu | nouveau nouvelle nouvel <
PATCLN | beautiful | schön | beau belle bel <
TCSVBA | red | rot | rouge
PA | tired | müde | fatigué
P | friendly | freundlich | aimable
RFMK | good | gut | bon bonne <
TCSVB | green | grün | vert
P | happy | glücklich | heureux heureuse
TCVRD | expensive | teuer teur | cher chère
AVCSB | white | weiß | blanc blanche
CATV | black | schwarz | noir
P | rich | reich | riche
RN | long | lang | long longue
PR | sad | traurig | triste
TFSN | heavy | schwer | lourd
TCSBV | blue | blau | bleu
PA | strong | stark | fort
FM | fresh | frisch | frais fraîche
PA | ill | krank | malade
TCSLVB | dirty | schmutzig | sale
PLR | famous | berühmt | célèbre
LNB | dark | dunkel dunkl | sombre
MK | cold | kalt | froid
P | poor | arm | pauvre
TC | yellow | gelb | jaune
MK | warm | warm | chaud
LDV | modern | modern | moderne
PA | clever | klug | intelligent
RPT | strange | seltsam | étrange
P | proud | stolz | fier fière
B | high | hoch hoh | haut <
"""

VERBS = """
# frame subjects objects | english: base [past [participle]] [+particle]
# | german: [prefix+]infinitive [third past participle] [sein]
# | french: infinitive [je il nous ils participle future] [être] [se] [à]
# | s: stative, so imparfait and no progressive; or, frame p, the preposition: english ; german case ; french
t PA PATDRCFBVNSL | see saw seen | sehen sieht sah gesehen | voir vois voit voyons voient vu verr
t P PATDRCFLV | like | mögen mag mochte gemocht | aimer | s
t P RTFCVD | buy bought | kaufen | acheter=achèt
t P R | read read | lesen liest las gelesen | lire lis lit lisons lisent lu lir
t P TRCAP | find found | finden findet fand gefunden | trouver
t PA FM | eat ate eaten | essen isst aß gegessen | manger
t P B | open | öffnen | ouvrir ouvre ouvre ouvrons ouvrent ouvert ouvrir
t P TDRCVA | have had | haben hat hatte gehabt | avoir ai/as a avons ont eu aur | s
t PA K | drink drank drunk | trinken trinkt trank getrunken | boire bois boit buvons boivent bu boir
t P TRCFVD | sell sold | verkaufen | vendre vends vend vendons vendent vendu vendr
t P D | turn +on | ein+schalten | allumer
t P B | close | schließen schließt schloss geschlossen | fermer
t P P | call | an+rufen ruft rief gerufen | appeler=appell
t P R | write wrote written | schreiben schreibt schrieb geschrieben | écrire écris écrit écrivons écrivent écrit écrir
t P C | put put +on | an+ziehen zieht zog gezogen | mettre mets met mettons mettent mis mettr
t P P | invite | ein+laden lädt lud geladen | inviter
t P D | turn +off | aus+schalten | éteindre éteins éteint éteignons éteignent éteint éteindr
t P T | lose lost | verlieren verliert verlor verloren | perdre perds perd perdons perdent perdu perdr
t PA PA | hear heard | hören | entendre entends entend entendons entendent entendu entendr
t P L | visit | besuchen | visiter
t P TCR | throw threw thrown +away | weg+werfen wirft warf geworfen | jeter=jett
t P P | meet met | treffen trifft traf getroffen | rencontrer
t P P | know knew known | kennen kennt kannte gekannt | connaître connais connaît connaissons connaissent connu connaîtr | s
t P TC | bring brought +back | zurück+bringen bringt brachte gebracht | rapporter
t P VD | repair | reparieren | réparer
t P TRC | forget forgot forgotten | vergessen vergisst vergaß vergessen | oublier
t P T | carry | tragen trägt trug getragen | porter
t P PA | love | lieben | aimer | s
t P CV | wash | waschen wäscht wusch gewaschen | laver
t P NLA | paint | malen | peindre peins peint peignons peignent peint peindr
t P T | steal stole stolen | stehlen stiehlt stahl gestohlen | voler
t P A | feed fed | füttern | nourrir
t P TC | pick +up | auf+heben hebt hob gehoben | ramasser
t P C | choose chose chosen | aus+suchen | choisir
t P PA | watch | beobachten | observer
t P FM | prepare | vor+bereiten | préparer
d P P | help | helfen hilft half geholfen | aider
d P P | thank | danken | remercier
d PA PA | follow | folgen sein | suivre suis suit suivons suivent suivi suivr
d P P | answer | antworten | répondre réponds répond répondons répondent répondu répondr à
i PA - | sleep slept | schlafen schläft schlief geschlafen | dormir dors dort dormons dorment dormi dormir
i P - | work | arbeiten | travailler
i P - | arrive | an+kommen kommt kam gekommen sein | arriver être
i P - | sing sang sung | singen singt sang gesungen | chanter
i P - | laugh | lachen | rire ris rit rions rient ri rir
i P - | come came come +back | zurück+kommen kommt kam gekommen sein | revenir reviens revient revenons reviennent revenu reviendr être
i PA - | play | spielen | jouer
i P - | get got +up | auf+stehen steht stand gestanden sein | lever=lèv être se
i P - | dance | tanzen | danser
i P - | cry | weinen | pleurer
i P - | wake woke woken +up | auf+wachen sein | réveiller être se
l P - | stay | bleiben bleibt blieb geblieben sein | rester être
l P - | live | wohnen | habiter | s
m P - | go went gone | gehen geht ging gegangen sein | aller vais/vas va allons vont allé ir être
m PA - | run ran run | laufen läuft lief gelaufen sein | courir cours court courons courent couru courr
m P - | come came come | kommen kommt kam gekommen sein | venir viens vient venons viennent venu viendr être
m P - | return | zurück+kehren sein | retourner être
p P P | wait | warten | attendre attends attend attendons attendent attendu attendr | for ; auf acc ; -
p P PLV | dream | träumen | rêver | of ; von dat ; de
p P PR | talk | sprechen spricht sprach gesprochen | parler | about ; über acc ; de
p P PA | think thought | denken denkt dachte gedacht | penser | of ; an acc ; à
g P TRFC | give gave given | geben gibt gab gegeben | donner
g P TRDC | show showed shown | zeigen | montrer
g P RT | send sent | schicken | envoyer=envoi~enverr
g P TFCR | bring brought | bringen bringt brachte gebracht | apporter
g P RTV | lend lent | leihen leiht lieh geliehen | prêter
g P TF | offer | an+bieten bietet bot geboten | offrir offre offre offrons offrent offert offrir
c P - | know knew known | wissen weiß wusste gewusst | savoir sais sait savons savent su saur | s
c P - | say said | sagen | dire dis dit disons disent dit dir
c P - | believe | glauben | croire crois croit croyons croient cru croir | s
c P - | hope | hoffen | espérer=espèr~espérer | s
"""  # noqa: E501

BE = "b PA - | be was been | sein ist war gewesen sein | être suis/es est sommes sont été ser | s"
BECOME = (
    "b PA - | become became become | werden wird wurde geworden sein | "
    "devenir deviens devient devenons deviennent devenu deviendr être"
)

MODALS = """
# english present [past] | german present past | french conditional or present forms as above
can could | können kann konnte gekonnt | pouvoir peux peut pouvons peuvent pu pourr
must had | müssen muss musste gemusst | devoir dois doit devons doivent dû devr
want wanted | wollen will wollte gewollt | vouloir veux veut voulons veulent voulu voudr
"""

PREPOSITIONS = """
# english | german case | french ; kinds of place it goes with
in | in dat | dans | L
behind | hinter dat | derrière | LSN
on | auf dat | sur | S
under | unter dat | sous | SN
next to | neben dat | à côté de | LSN
with | mit dat | avec | P
without | ohne acc | sans | P
for | für acc | pour | P
to | zu dat | à | L
into | in acc | dans | L
"""

TIMES = """
# tenses: p present, h past, f future | english | german | french
ph | today | heute | aujourd'hui
h | yesterday | gestern | hier
f | tomorrow | morgen | demain
p | now | jetzt | maintenant
f | soon | bald | bientôt
phf | in the evening | am Abend | le soir
phf | on Monday | am Montag | lundi
p | every day | jeden Tag | chaque jour
phf | in the morning | am Morgen | le matin
"""

FREQUENCIES = """
often | oft | souvent
always | immer | toujours
sometimes | manchmal | parfois
rarely | selten | rarement
"""

MANNERS = """
slowly | langsam | lentement
quickly | schnell | rapidement
quietly | leise | doucement
happily | fröhlich | joyeusement
"""

PROFESSIONS = """
# english | german masculine feminine | french masculine feminine
teacher | Lehrer Lehrerin | professeur professeure
doctor | Arzt Ärztin | médecin médecin
student | Student Studentin | étudiant étudiante
baker | Bäcker Bäckerin | boulanger boulangère
painter | Maler Malerin | peintre peintre
farmer | Bauer Bäuerin | paysan paysanne
"""

CONJUNCTIONS = """
# tenses it goes with | english | german present past | french
ph | because | weil weil | parce que
ph | when | wenn als | quand
p | if | wenn wenn | si
ph | although | obwohl obwohl | même si
p | while | während während | pendant que
"""
